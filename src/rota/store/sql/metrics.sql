-- The counts of `rota metrics`. They run at every scrape, so none here reads all that is over.

-- name: count_open
-- Open runs. Each part has an index that holds nothing else; the last two are what sleeps until
-- something wakes it, and what waits for a person.
select queue, kind, 'pending' as status, '' as reason, count(*), min(available_at), 0
from runs where namespace = :namespace and status = 'pending'
group by queue, kind
union all
select queue, kind, 'running', '', count(*), 0,
    sum(case when lease_until < :now then 1 else 0 end)
from runs where namespace = :namespace and status = 'running'
group by queue, kind
union all
select '', kind, 'sleeping', '', count(*), 0, 0
from runs where namespace = :namespace and status = 'sleeping' and available_at is not null
group by kind
union all
select '', kind, 'sleeping', '', count(*), 0, 0
from runs where namespace = :namespace and status = 'sleeping' and available_at is null
group by kind
union all
select '', kind, 'waiting', coalesce(reason, ''), count(*), 0, 0
from runs where namespace = :namespace and status = 'waiting'
group by kind, reason

-- name: count_newest
-- The newest runs of all namespaces, up to a limit. With a filter before the limit, the statement
-- would read without a bound.
select case when newest.namespace = :namespace then 1 else 0 end as own, newest.kind,
    newest.status, count(*), min(newest.created_at)
from (
    select runs.namespace, runs.kind, runs.status, runs.created_at from runs
    where runs.id >= :since_id order by runs.id desc limit :limit
) as newest
group by 1, 2, 3

-- name: count_schedules
select status, reason, count(*),
    sum(case when status = 'scheduled' and due_at is not null and available_at < :now
        then 1 else 0 end),
    min(case when status = 'scheduled' and due_at is not null then available_at end)
from runs
where namespace = :namespace and kind = 'schedule'
group by status, reason

-- name: schedule_times
-- The schedules that are due next.
select name, started_at, available_at from runs
where namespace = :namespace and status = 'scheduled' and due_at is not null
    and available_at is not null
order by available_at limit :limit

-- name: count_automations
-- With the state of the one open run of each.
select automations.status, open_run.status, open_run.reason, count(*)
from automations
left join runs as open_run on open_run.namespace = automations.namespace
    and open_run.serial_key = :key_prefix || automations.name and open_run.serial_key is not null
    and open_run.finished_at is null
where automations.namespace = :namespace
group by automations.status, open_run.status, open_run.reason

-- name: pipeline_executions
-- The last attempts of the executions of every schedule of a pipeline.
select template.name as schedule, runs.id as id
from runs as template join runs on runs.schedule_id = template.id
where template.namespace = :namespace and template.kind = 'schedule'
    and template.spec like '%"kind":"pipeline"%' and runs.schedule_id is not null
    and runs.kind = 'pipeline' and runs.status <> 'skipped' and {last attempt runs}

-- name: recent_executions
-- Those that were due, or were started by hand, since an instant; of very many, the newest.
with recent as (
    {query pipeline_executions} and runs.due_at >= :since
    union all
    {query pipeline_executions} and runs.due_at is null and runs.created_at >= :since
    order by id desc limit :limit
)
select recent.schedule, runs.status, {query output_of_run}
from recent join runs on runs.id = recent.id

-- name: newest_runs
-- The newest runs, up to a limit, for the charts of an overview.
select namespace, kind, status, created_at, started_at, finished_at, available_at, due_at, trigger
from runs where id >= :since_id order by id desc limit :limit

-- name: busy_slots
-- Runs in progress by worker.
select lease_owner, count(*) from runs
where namespace = :namespace and status = 'running'
group by lease_owner

-- name: unsuccessful_ids
select id from runs
where namespace = :namespace and status = :status and finished_at is not null
    and status <> 'completed' and id >= :since_id
order by id desc

-- name: unsuccessful_since
{query unsuccessful_ids} limit :limit

-- name: last_failures
-- The newest failed or crashed runs without a later attempt, among the newest that failed. Their
-- parents and automations report those that are not of the top level.
select {run columns} from runs
where id in ({query unsuccessful_ids} limit :window)
    and (:top_level = 0 or (parent_id is null and kind <> 'automation'))
    and {last attempt runs}
order by id desc limit :limit

-- name: end_of_failures
-- The last of the runs that `last_failures` searched, if there are more.
{query unsuccessful_ids} limit 2 offset :window

-- name: stopped_schedules
-- Schedules that were quarantined, because they cannot be read.
select {schedule columns} from runs
where namespace = :namespace and kind = 'schedule' and reason like 'quarantined: %'
order by name limit :limit
