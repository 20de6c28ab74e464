-- Telling others about executions of schedules: whom, and the runs that do it.

-- name: put_notice
insert into notices (schedule_id, body) values (:schedule_id, :body)
on conflict (schedule_id) do update set body = excluded.body

-- name: delete_notice
delete from notices where schedule_id = :schedule_id

-- name: notices_of
select schedule_id, body from notices where schedule_id {in ids}

-- name: ends_of_chains
-- The last attempt of each of these chains; a cancelled one is not reported.
select runs.id, runs.root_id from runs
where (runs.id {in roots} or (runs.root_id {in roots} and runs.retry_of is not null))
    and runs.status <> 'cancelled'
    and not exists (select 1 from runs as later where later.retry_of = runs.id)

-- name: start_notices
-- The notifying run, beside what it reports; its external id makes it one, however often it is
-- sent.
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, root_id,
    attempt, recoveries, trigger, external_id, input, created_at)
select item.id, runs.namespace, 'workflow', :name, runs.queue, runs.priority, 'pending',
    :now, item.id, 1, 0, 'event', item.external_id, item.input, :now
from runs {, items: id text, schedule_id text, external_id text, input text}
where runs.id = item.schedule_id
on conflict do nothing
returning id

-- name: notified_of
-- Which of these runs have been reported.
select external_id from runs
where namespace = :namespace and name = :name and external_id {in ids}
    and external_id is not null

-- name: execution_before
-- How the execution ended that came before one: the last that was due before it, or one that was
-- started by hand since and ended before it, whichever ended later.
select before.status, before.reason from (
    select * from (
        select runs.id, runs.status, runs.reason, runs.finished_at from runs
        where runs.schedule_id = :schedule_id and runs.schedule_id is not null
            and runs.due_at < :due_at
            and runs.status in ('completed', 'failed', 'crashed')
            and not exists (select 1 from runs as later where later.retry_of = runs.id)
        order by runs.due_at desc limit 1
    ) as due
    union all
    select runs.id, runs.status, runs.reason, runs.finished_at from runs
    where runs.schedule_id = :schedule_id and runs.schedule_id is not null
        and runs.due_at is null and runs.root_id <> :root_id and runs.finished_at < :ended_at
        and runs.status in ('completed', 'failed', 'crashed')
        and not exists (select 1 from runs as later where later.retry_of = runs.id)
) as before
order by before.finished_at desc, before.id desc limit 1

-- name: record_notifications
-- The events of these runs, if a rule of the namespace wants to know. A run of a schedule is
-- known by the schedule's name, too.
insert into notifications (id, namespace, kind, source, name, schedule, queue, tags, subject,
    run_id, details, created_at, is_open)
select item.id, runs.namespace, item.kind,
    case when runs.kind = 'workflow' and runs.schedule_id is not null then 'schedule'
        else runs.kind end,
    case when runs.kind = 'pipeline' then substr(runs.name, :named_from) else runs.name end,
    case when runs.kind = 'schedule' then runs.name else template.name end,
    runs.queue, runs.tags, item.subject, runs.id, item.details, :now, item.is_open
from runs left join runs as template on template.id = runs.schedule_id
    {, items: id text, kind text, run_id text, subject text, details text, is_open int}
where runs.id = item.run_id
    and exists (
        select 1 from notification_rules as rules
        where rules.namespace = runs.namespace
            and rules.kinds like '%,' || item.kind || ',%'
    )
on conflict do nothing
returning id

-- name: open_troubles
select subject from notifications where subject {in subjects} and is_open = 1

-- name: close_troubles
update notifications set is_open = 0 where subject {in subjects} and is_open = 1
returning subject

-- name: new_notifications
select id, kind, source, name, schedule, queue, tags, run_id, details, created_at
from notifications
where namespace = :namespace and dispatched_at is null
order by id limit :limit

-- name: list_notifications
select id, kind, source, name, schedule, queue, tags, run_id, details, created_at, sent_to
from notifications
where namespace = :namespace and kind {in kinds} and id < :before_id
order by id desc limit :limit

-- name: latest_notification
-- The newest about a run that has not recovered.
select id, kind, source, name, schedule, queue, tags, run_id, details, created_at, sent_to
from notifications
where subject = :subject and is_open = 1 and run_id = :run_id
order by id desc limit 1

-- name: dispatch_notifications
update notifications set dispatched_at = :now, sent_to = item.sent_to
{from items: id text, sent_to text}
where notifications.id = item.id

-- name: prune_notifications
delete from notifications where id in (
    select id from notifications
    where namespace = :namespace and created_at < :before and dispatched_at is not null
    limit :limit
)
returning id

-- name: put_rules
insert into notification_rules (namespace, name, origin, kinds, body)
select item.namespace, item.name, item.origin, item.kinds, item.body
{from items: namespace text, name text, origin text, kinds text, body text}
where true
on conflict (namespace, name) do update
set origin = excluded.origin, kinds = excluded.kinds, body = excluded.body

-- name: delete_rules
delete from notification_rules
where namespace = :namespace and origin {in origins} and not (name {in names})

-- name: lock_rules
select name, body, progress from notification_rules where namespace = :namespace order by name
{lock}

-- name: advance_rules
update notification_rules set progress = item.progress
{from items: namespace text, name text, progress text}
where notification_rules.namespace = item.namespace and notification_rules.name = item.name
