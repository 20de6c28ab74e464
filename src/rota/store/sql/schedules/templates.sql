-- Schedules: template rows, firing, the ledger of occurrences.

-- name: put_schedule
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, due_at,
    cron_expr, spec, root_id, parent_id, attempt, recoveries, trigger, version, tags, options,
    input, created_at)
values (:id, :namespace, 'schedule', :name, :queue, :priority, :status, :reason, :available_at, :due_at,
    :cron_expr, :spec, :id, :parent_id, 1, 0, :trigger, :version, :tags, :options, :input, :now)
on conflict do nothing
returning id

-- name: change_schedule
update runs
set queue = :queue, priority = :priority, status = :status, reason = :reason,
    available_at = :available_at, due_at = :due_at, cron_expr = :cron_expr, spec = :spec,
    options = :options, input = :input, parent_id = :parent_id
where id = :id and (status = 'scheduled' or status = 'paused')
returning id

-- name: get_schedule
select {schedule columns} from runs
where namespace = :namespace and name = :name and kind = 'schedule'

-- name: get_schedule_locked
{query get_schedule}
{lock}

-- name: list_schedules
select {schedule columns} from runs
where namespace = :namespace and kind = 'schedule' and name > :after
    and (:status = '' or status = :status)
    and (:search = '' or replace(lower(name), :search, '') <> lower(name))
order by name limit :limit

-- name: count_listed_schedules
select count(*), coalesce(sum(paused), 0) from (
    select case when status = 'paused' then 1 else 0 end as paused from runs
    where namespace = :namespace and kind = 'schedule'
        and (:search = '' or replace(lower(name), :search, '') <> lower(name))
    order by name limit :limit
) as listed

-- name: schedules_of
-- The schedules that programs declare. The name of the program is in `parent_id`, which is indexed.
-- The namespace is wrapped, or SQLite would take the index by name and read every schedule.
select {schedule columns} from runs
where parent_id {in origins} and parent_id is not null and coalesce(namespace, '') = :namespace
    and kind = 'schedule'
order by name

-- name: origins_between
-- The programs that declare schedules, by a range of their names.
select distinct parent_id from runs
where parent_id > :after and parent_id < :before and parent_id is not null
    and coalesce(namespace, '') = :namespace and kind = 'schedule'
order by parent_id

-- name: ailing_schedules
-- Quarantined, or in the way of a declaration that is ignored. For the doctor, which may be slow.
select {schedule columns} from runs
where namespace = :namespace and kind = 'schedule'
    and (reason like 'quarantined: %' or (parent_id is not null and spec like '%"ignored":%'))
order by name limit :limit

-- name: soonest_schedules
select {schedule columns} from runs
where namespace = :namespace and status = 'scheduled' and available_at > :now
    and available_at <= :until
order by available_at, id limit :limit

-- name: overdue_schedules
-- A page of those that should have fired, after an instant and an id.
select {schedule columns} from runs
where namespace = :namespace and status = 'scheduled' and available_at <= :now
    and available_at >= :at and (available_at > :at or id > :id)
order by available_at, id limit :limit

-- name: delete_schedule
delete from runs where id = :id and (status = 'scheduled' or status = 'paused')
returning namespace, name, spec, started_at

-- name: put_deleted_schedule
insert into deleted_schedules (namespace, name, workflow, written, fired_at, deleted_at)
values (:namespace, :name, :workflow, :written, :fired_at, :now)
on conflict (namespace, name) do update set workflow = excluded.workflow,
    written = excluded.written, fired_at = excluded.fired_at, deleted_at = excluded.deleted_at

-- name: get_deleted_schedule
select workflow, written, fired_at, deleted_at from deleted_schedules
where namespace = :namespace and name = :name

-- name: forget_deleted_schedules
delete from deleted_schedules where namespace = :namespace and deleted_at < :before

-- name: namespaces_with_schedule
-- Reads the index of all schedules: asked only for a name that is not known.
select namespace from runs
where name = :name and kind = 'schedule' and namespace <> :namespace
order by namespace limit 3

-- name: due_schedules
select id, name, due_at, spec, options, started_at from runs
where namespace = :namespace and status = 'scheduled' and available_at <= :now
    and due_at is not null
order by available_at
limit :limit
{skip_locked}

-- name: due_pauses
-- Schedules with a pause that has ended.
select {schedule columns} from runs
where namespace = :namespace and status = 'paused' and available_at is not null
    and available_at <= :now
limit :limit
{skip_locked}

-- name: next_schedule
select min(available_at) from runs
where namespace = :namespace and status = 'scheduled' and available_at is not null

-- name: next_pause
select min(available_at) from runs
where namespace = :namespace and status = 'paused' and available_at is not null

-- name: from_open_runs
-- The status range is redundant: it lets SQLite choose the narrower index of open runs. Backfill runs
-- do not count. Only the first attempt of a chain has the trigger `backfill`. `not exists` would read
-- all backfills on PostgreSQL.
from runs
where schedule_id {in ids} and schedule_id is not null
    and finished_at is null and status >= 'pending'
    and (trigger = 'schedule' or coalesce((
        select root.trigger from runs as root where root.id = runs.root_id), '') <> 'backfill')

-- name: open_of_schedules
select schedule_id,
    sum(case when status = 'sleeping' and reason = 'turn' then 0 else 1 end),
    sum(case when status = 'sleeping' and reason = 'turn' then 1 else 0 end)
{query from_open_runs}
group by schedule_id

-- name: open_roots_of
select root_id {query from_open_runs}

-- name: failures_in_a_row
-- How many of the newest chains that ended did so badly, for each schedule, up to the limit.
select item.id, (
    select coalesce(min(case when placed.status = 'completed' then placed.place end) - 1, count(*))
    from (
        select recent.status, row_number() over (order by recent.due_at desc) as place
        from (
            select runs.status, runs.due_at from runs
            where runs.schedule_id = item.id and runs.schedule_id is not null
                and runs.due_at >= item.since_at
                and runs.status in ('completed', 'failed', 'crashed')
                and {last attempt runs}
            order by runs.due_at desc limit :limit
        ) as recent
    ) as placed
)
{from items: id text, since_at int}

-- name: fire_runs
-- The template gives what all its runs share; nothing of it travels.
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, due_at,
    schedule_id, root_id, attempt, recoveries, trigger, tags, options, input, output, created_at,
    finished_at)
select item.id, runs.namespace,
    item.kind, item.workflow, runs.queue, runs.priority, item.status,
    item.reason, item.available_at, item.due_at, runs.id, item.id, 1, 0, item.trigger, runs.tags,
    coalesce(item.options, runs.options), runs.input, item.output, :now, item.finished_at
from runs {, items: id text, schedule_id text, kind text, workflow text, status text, reason text, available_at int, due_at int, trigger text, options text, output text, finished_at int}
where runs.id = item.schedule_id
on conflict do nothing
returning id

-- name: plain_firing
-- The columns of the items that the next two statements share.
id text, schedule_id text, kind text, workflow text, available_at int, due_at int, options text,
    next_at int, next_due_at int

-- name: fire_plain
-- The common case: one run each, ready at once.
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, due_at,
    schedule_id, root_id, attempt, recoveries, trigger, tags, options, input, created_at)
select item.id, runs.namespace,
    item.kind, item.workflow, runs.queue, runs.priority, 'pending',
    item.available_at, item.due_at, runs.id, item.id, 1, 0, 'schedule', runs.tags,
    coalesce(item.options, runs.options), runs.input, :now
from runs {, items: {query plain_firing}}
where runs.id = item.schedule_id
on conflict do nothing

-- name: advance_plain
-- Move these schedules to their next occurrence. Columns that do not change are not written, so their
-- indexes are not updated.
update runs
set available_at = item.next_at, due_at = item.next_due_at, started_at = item.due_at
{from items: {query plain_firing}}
where runs.id = item.schedule_id and runs.status = 'scheduled' and runs.due_at = item.due_at

-- name: advance_schedules
-- Compare and set: the first to fire this occurrence has moved `due_at` already.
update runs
set status = item.status, reason = item.reason, available_at = item.available_at,
    due_at = item.next_due_at, spec = coalesce(item.spec, runs.spec),
    started_at = coalesce(item.fired_at, runs.started_at)
{from items: id text, due_at int, status text, reason text, available_at int, next_due_at int, spec text, fired_at int}
where runs.id = item.id and runs.status = :was and runs.due_at is not distinct from item.due_at
returning runs.id

-- name: next_of_backfill
select id from runs
where schedule_id = :id and schedule_id is not null and status = 'sleeping' and reason = 'backfill'
    and finished_at is null
order by due_at, id limit :limit

-- name: with_queued
-- Which of these schedules have runs that wait for their turn.
select distinct schedule_id from runs
where schedule_id {in ids} and schedule_id is not null and status = 'sleeping'
    and finished_at is null and (reason = 'turn' or reason = 'backfill')

-- name: free_waiting
-- Those that wait for their turn, or those of a backfill, which keeps its own concurrency.
update runs set status = 'pending', reason = null, available_at = :now
where schedule_id = :id and schedule_id is not null and status = 'sleeping'
    and finished_at is null and reason {in reasons}

-- name: free_orphans
-- Runs that wait for a schedule that is gone.
update runs set status = 'pending', reason = null, available_at = :now
where namespace = :namespace and status = 'sleeping' and available_at is null
    and kind {in kinds} and (reason = 'turn' or reason = 'backfill') and schedule_id is null
returning id

-- name: no_earlier_run
-- For a backfill only backfill runs count as earlier, for a queued occurrence only runs outside of
-- backfills. The including query names the queued run `waiting`, one for each schedule and reason.
not exists (
    select 1 from runs as other
    where other.schedule_id = waiting.schedule_id and other.schedule_id is not null
        and other.finished_at is null and other.status >= 'pending'
        and not (other.status = 'sleeping' and coalesce(other.reason, '') = waiting.reason)
        and case (select root.trigger from runs as root where root.id = other.root_id)
            when 'backfill' then 'backfill' else 'turn' end = waiting.reason)

-- name: stuck_queued
-- Schedules with a run that waits behind no run.
select waiting.schedule_id from (
    select distinct schedule_id, reason from runs
    where namespace = :namespace and status = 'sleeping' and available_at is null
        and kind {in kinds} and reason = :reason and schedule_id is not null
) as waiting
where {query no_earlier_run}

-- name: lock_templates
-- Also returns whether the schedule has receivers, and whether one of its notifications is still open
-- (no recovery yet).
select id, exists (select 1 from notices where notices.schedule_id = runs.id) as tells,
    exists (select 1 from notifications where subject = runs.id and is_open = 1) as troubled
from runs where id {in ids} order by id
{lock}

-- name: root_triggers
-- The trigger of each chain, and `available_at`, which is null if the run never left the queue.
select id, trigger, available_at from runs where id {in ids}

-- name: release_queued
-- For each of these schedules, the occurrence that has been queued longest is released.
with picked as (
    select (select next.id from runs as next
        where next.schedule_id = item.schedule_id and next.schedule_id is not null
            and next.status = 'sleeping' and next.reason = 'turn'
            and next.finished_at is null
        order by next.due_at, next.id limit 1) as id
    {from items: schedule_id text}
)
update runs set status = 'pending', reason = null, available_at = :now
where id in (select id from picked) and status = 'sleeping'

-- name: release_runs
update runs set status = 'pending', reason = null, available_at = :now
where id {in ids} and status = 'sleeping'

-- name: fired_between
select due_at from runs
where schedule_id = :id and schedule_id is not null and due_at >= :from_at and due_at <= :to_at
    and retry_of is null and status <> 'skipped'

-- name: last_attempts
-- The newest attempt of each chain.
select {run columns} from runs
where (id {in roots} or (root_id {in roots} and retry_of is not null))
    and {last attempt runs}
