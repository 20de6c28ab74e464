-- The receivers that a schedule brings along, recorded notifications, and rules.

-- name: put_notice
insert into notices (schedule_id, body) values (:schedule_id, :body)
on conflict (schedule_id) do update set body = excluded.body

-- name: delete_notice
delete from notices where schedule_id = :schedule_id

-- name: notice_of
select body from notices where schedule_id = :schedule_id

-- name: record_notifications
-- The events of these runs, if a rule of the namespace or the schedule's own receivers want to know.
-- A run of a schedule is known by the schedule's name, too. Rules want no routine event, so it counts
-- as dispatched to them. A count: for `exists` PostgreSQL would read the rules of all namespaces.
insert into notifications (id, namespace, kind, source, name, schedule, queue, tags, subject,
    run_id, details, created_at, is_open, dispatched_at, recipients)
select item.id, runs.namespace, item.kind,
    case when runs.kind = 'workflow' and runs.schedule_id is not null then 'schedule'
        else runs.kind end,
    case when runs.kind = 'pipeline' then substr(runs.name, :named_from) else runs.name end,
    case when runs.kind = 'schedule' then runs.name else template.name end,
    runs.queue, runs.tags, item.subject, runs.id, item.details, :now, item.is_open,
    item.dispatched_at, notices.body
from runs left join runs as template on template.id = runs.schedule_id
    left join notices on notices.schedule_id = runs.schedule_id
    {, items: id text, kind text, run_id text, subject text, details text, is_open int,
        dispatched_at int}
where runs.id = item.run_id
    and (notices.body is not null or (
        select count(*) from notification_rules as rules
        where rules.namespace = runs.namespace
            and rules.kinds like '%,' || item.kind || ',%'
    ) > 0)
on conflict do nothing
returning id

-- name: open_troubles
select subject from notifications where subject {in subjects} and is_open = 1

-- name: close_troubles
update notifications set is_open = 0 where subject {in subjects} and is_open = 1
returning subject

-- name: new_notifications
-- Lock the rows themselves: a namespace without rules has no rule rows to lock. Skip rows that a
-- settlement is updating: waiting could deadlock, and the next poll reads them.
select id, kind, source, name, schedule, queue, tags, run_id, details, created_at,
    dispatched_at, sent_to, recipients
from notifications
where namespace = :namespace and (dispatched_at is null or recipients is not null)
order by id limit :limit
{skip_locked}

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
update notifications set dispatched_at = coalesce(dispatched_at, :now), sent_to = item.sent_to,
    recipients = null
{from items: id text, sent_to text}
where notifications.id = item.id

-- name: prune_notifications
delete from notifications where id in (
    select id from notifications
    where namespace = :namespace and created_at < :before and dispatched_at is not null
        and recipients is null
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

-- name: long_outages
-- Automations that wait for a counterpart: for reads and unsent calls, or to find out what a call
-- did.
select runs.id, runs.root_id, min(coalesce(automations.waits_since, mutations.created_at)),
    min(coalesce(automations.waits_for, mutations.tool)), runs.reason, runs.retry_of
from automations join runs on runs.namespace = automations.namespace
    and runs.serial_key = 'automation:' || automations.name and runs.finished_at is null
left join mutations on mutations.root_id = runs.root_id and mutations.status = 'needs_reconcile'
where automations.namespace = :namespace and automations.status = 'active'
    and runs.status = 'sleeping'
    and (runs.reason = 'transient' or runs.reason = 'timeout' or runs.reason = 'reconciliation')
    and (automations.waits_since is not null or mutations.id is not null)
group by runs.id, runs.root_id, runs.reason, runs.retry_of

-- name: stranded_automations
-- Work is due, and no worker that lives has the deployed code.
select runs.id, runs.root_id, runs.available_at, null, null, null
from automations join runs on runs.namespace = automations.namespace
    and runs.serial_key = 'automation:' || automations.name and runs.finished_at is null
where automations.namespace = :namespace and automations.status = 'active'
    and runs.status = 'pending' and runs.available_at is not null
    and not exists (select 1 from workers
        join code_digests on code_digests.code_id = workers.code_id
        where workers.namespace = :namespace and workers.status <> 'offline'
            and workers.heartbeat_at > :alive_after and code_digests.name = automations.name
            and code_digests.digest = automations.digest)

-- name: long_waits
-- Runs that wait for a person, since the notification that asked.
select runs.id, notifications.subject, max(notifications.created_at), null, runs.reason, null
from notifications join runs on runs.id = notifications.run_id
where notifications.namespace = :namespace and notifications.is_open = 1
    and runs.status = 'waiting'
group by runs.id, notifications.subject, runs.reason
