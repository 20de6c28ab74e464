-- name: chains_below
-- One level of them. For all levels at once, PostgreSQL would read the whole table.
select root_id from runs
where parent_id {in parents} and parent_id is not null and retry_of is null
    and trigger <> 'detached'

-- name: open_of_chains
select id from runs
where (id {in roots} or (root_id {in roots} and retry_of is not null))
    and status in ('pending', 'running', 'sleeping', 'waiting')

-- name: cancel_runs
update runs
set status = 'cancelled', reason = :reason, finished_at = :now, lease_owner = null, lease_until = null
where id {in ids} and status in ('pending', 'running', 'sleeping', 'waiting')
returning id, parent_id, schedule_id, root_id

-- name: expire_runs
-- Only what no worker has ever claimed.
update runs
set status = 'skipped', reason = 'expired', finished_at = :now
where id {in ids} and claim_count = 0 and (status = 'pending' or status = 'sleeping')
returning id, parent_id, schedule_id, root_id, due_at, options
