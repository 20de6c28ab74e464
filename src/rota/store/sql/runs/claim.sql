-- name: set_claimed
set status = 'running', reason = null, lease_owner = :worker_id, lease_until = :lease_until,
    claim_count = claim_count + 1, wake_requested = 0, started_at = coalesce(started_at, :now)

-- name: paused_queue
select 1 from queues
where queues.namespace = :namespace and queues.name = :queue and queues.paused = 1

-- name: claim_listed
-- Claims runs that were picked under a limit while the queue's row was locked.
update runs {query set_claimed}
where id {in ids} and status = 'pending'
returning {claim columns}

-- name: pick_unkeyed
-- Runs without a key, and all runs of a queue without a limit per key.
select id, priority, available_at from runs
where {claimable runs}
    and (limit_key is null or :per_key = 0)
order by priority desc, available_at, id
limit :limit
{skip_locked}

-- name: pending_keys
-- A loose scan over the keys that wait, so that a backlog on one key does not delay other keys.
with recursive waiting (key) as (
    select min(limit_key) from runs
    where namespace = :namespace and queue = :queue and status = 'pending' and limit_key is not null
        and finished_at is null
    union all
    select (select min(limit_key) from runs
        where namespace = :namespace and queue = :queue and status = 'pending'
            and limit_key > waiting.key and finished_at is null)
    from waiting where waiting.key is not null
)
select waiting.key from waiting where waiting.key is not null

-- name: first_of_key
-- The first runs of `item.key` that a worker may take.
from runs as next
where next.namespace = :namespace and next.queue = :queue and next.status = 'pending'
    and next.limit_key = item.key and {served next} and next.recoveries < 2
    and next.finished_at is null
order by next.priority desc, next.available_at, next.id
limit :share

-- name: keyed_runs
item join runs on runs.id in (select next.id {query first_of_key})

-- name: pick_keyed
-- For each key, as many of its first runs as its limit leaves room for.
with item as ({query pending_keys}),
ranked as (
    select runs.id, runs.priority, runs.available_at,
        row_number() over (partition by item.key
            order by runs.priority desc, runs.available_at, runs.id) as place,
        (select count(*) from runs as busy where busy.namespace = :namespace and busy.queue = :queue
            and busy.limit_key = item.key and busy.status = 'running'
            and busy.finished_at is null) as busy_count
    from {query keyed_runs}
)
select id, priority, available_at from ranked
where place + busy_count <= :share
order by priority desc, available_at, id
limit :limit

-- name: pick_children
-- The first children of a run, from a queue without limits.
select id from runs
where parent_id = :parent_id and {claimable runs}
order by priority desc, available_at, id
limit :limit
{skip_locked}

-- name: pick_alone
-- The first runs that a worker without any other executes (core/runs/recovery).
select id, root_id from runs
where namespace = :namespace and queue = :queue and status = 'pending' and recoveries >= 2
    and {served runs}
    and (:per_key = 0 or limit_key is null or :per_key > (
        select count(*) from runs as busy where busy.namespace = :namespace and busy.queue = :queue
            and busy.limit_key = runs.limit_key and busy.status = 'running'
            and busy.finished_at is null))
order by priority desc, available_at, id
limit :limit
{skip_locked}

-- name: count_running
select count(*) from runs where namespace = :namespace and queue = :queue and status = 'running'
