-- name: retention_window
-- One page in the order of ids, which costs the same however many runs are stored; with each run
-- whether it is the first of a chain that may go, or the last of a segment that may go.
select id, retry_of is null and namespace = :namespace
    and (finished_at, id) < (:before_at, :before_root_id),
    reason = 'continued' and namespace = :namespace
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
-- Finished first runs: nothing that is open or young goes.
select root.id, root.parent_id from runs as root
where root.id {in ids}
    and not exists (select 1 from runs as later where later.root_id = root.id
        and later.retry_of is not null
        and (later.finished_at is null
            or (later.finished_at, root.id) >= (:before_at, :before_root_id)
            or later.id >= :before_id))
order by root.id

-- name: retryable_chains
-- Those of the chains that are there and did not complete, or only in part (the reason says so), each
-- with its newest segment.
select root.id, coalesce((select max(later.segment_id) from runs as later
    where later.root_id = root.id and later.retry_of is not null), root.id) from runs as root
where root.id {in roots} and (root.status <> 'completed' or root.reason is not null)
    and not exists (select 1 from runs as later where later.root_id = root.id
        and later.retry_of is not null and later.status = 'completed' and later.reason is null)

-- name: nth_newest_end
-- Sorts the end times of all stored runs: an index on them would slow down every start. `keep_runs`
-- keeps the table small, and each pass executes this once. A segment counts like a chain.
select run.finished_at, run.root_id from runs as run
where run.namespace = :namespace and run.finished_at is not null
    and (({last attempt run}) or (run.reason = 'continued' and run.retry_of is not null))
order by run.finished_at desc, run.root_id desc
limit 1 offset :newer

-- name: delete_steps
delete from steps where root_id {in roots}

-- name: delete_later_steps
-- Those of the later segments of chains.
delete from steps where root_id in (select segment_id from runs
    where root_id {in roots} and retry_of is not null and segment_id is not null)

-- name: ended_segments
select root_id, coalesce(segment_id, root_id) from runs where id {in ids} order by id

-- name: runs_of_segments
-- Without the first run of a chain: it stays as long as the chain does.
select runs.id from runs {, items: root_id text, segment_id text}
where runs.root_id = item.root_id and runs.retry_of is not null
    and coalesce(runs.segment_id, runs.root_id) = item.segment_id

-- name: delete_logs_of_runs
delete from run_logs where run_id {in ids}

-- name: delete_runs
delete from runs where id {in ids}

-- name: follow_first
-- The runs that followed deleted segments follow the first run of their chain now, so that it does not
-- look like the last one. A clock that was set back may leave an earlier segment: then that is followed
-- by nothing, which its reason explains.
update runs set retry_of = root_id
where root_id {in roots} and retry_of {in ids} and retry_of <> root_id
    and not exists (select 1 from runs as second
        where second.root_id = runs.root_id and second.retry_of = runs.root_id)

-- name: delete_chains
delete from runs where id {in roots} or (root_id {in roots} and retry_of is not null)
