-- name: retention_window
-- One page in the order of ids, which costs the same however many runs are stored; with each run
-- whether it is the first of a chain that may go.
select id, retry_of is null and namespace = :namespace
    and (finished_at, id) < (:before_at, :before_root_id) from runs
where id > :after_id and id < :before_id
order by id
limit :limit

-- name: lock_chains
-- Lock the rows before the check. A retry takes the same lock, so it cannot change a row between
-- check and delete.
select id from runs where id {in ids} order by id
{skip_locked}

-- name: prunable_chains
-- Finished first runs: nothing that is open or young, or that has an open parent, goes.
select root.id, root.parent_id from runs as root
where root.id {in ids}
    and not exists (select 1 from runs as later where later.root_id = root.id
        and later.retry_of is not null
        and (later.finished_at is null
            or (later.finished_at, root.id) >= (:before_at, :before_root_id)
            or later.id >= :before_id))
    and not exists (select 1 from runs as parent where root.parent_id is not null
        and (parent.id = root.parent_id or (parent.root_id = root.parent_id and parent.retry_of is not null))
        and parent.status in ('pending', 'running', 'sleeping', 'waiting'))
order by root.id

-- name: retryable_chains
-- Those of the chains that are there and did not complete, or only in part (the reason says so).
select root.id from runs as root
where root.id {in roots} and (root.status <> 'completed' or root.reason is not null)
    and not exists (select 1 from runs as later where later.root_id = root.id
        and later.retry_of is not null and later.status = 'completed' and later.reason is null)

-- name: nth_newest_end
-- Sorts the end times of all stored runs: an index on them would slow down every start. `keep_runs`
-- keeps the table small, and each pass executes this once.
select run.finished_at, run.root_id from runs as run
where run.namespace = :namespace and run.finished_at is not null
    and {last attempt run}
order by run.finished_at desc, run.root_id desc
limit 1 offset :newer

-- name: delete_steps
delete from steps where root_id {in roots}

-- name: delete_chains
delete from runs where id {in roots} or (root_id {in roots} and retry_of is not null)
