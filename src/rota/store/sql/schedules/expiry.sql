-- Runs of schedules that end unless they begin in time.

-- name: put_expiries
-- When runs expire. A run that was not inserted is skipped.
insert into run_expiries (run_id, namespace, expires_at)
select runs.id, runs.namespace, item.expires_at
from runs {, items: id text, expires_at int}
where runs.id = item.id

-- name: due_expiries
select run_id from run_expiries
where namespace = :namespace and expires_at <= :now
order by expires_at
limit :limit
{skip_locked}

-- name: delete_expiries
delete from run_expiries where run_id {in ids}

-- name: next_expiry
select min(expires_at) from run_expiries where namespace = :namespace

-- name: next_not_begun
-- After each of these occurrences, the run of the next one, if no worker has claimed it.
with picked as (
    select (select next.id from runs as next
        where next.schedule_id = item.schedule_id and next.schedule_id is not null
            and next.due_at > item.due_at and next.trigger = 'schedule'
            and next.status <> 'skipped' and next.retry_of is null
        order by next.due_at limit 1) as id
    {from items: schedule_id text, due_at int}
)
select id, schedule_id, options from runs
where id in (select id from picked) and claim_count = 0 and finished_at is null

-- name: put_options
update runs set options = item.options
{from items: id text, options text}
where runs.id = item.id

-- name: move_back_fired
-- The last occurrence that a schedule fired, if it has expired.
update runs set started_at = item.previous_at
{from items: schedule_id text, due_at int, previous_at int}
where runs.id = item.schedule_id and runs.started_at = item.due_at
