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

-- name: without_cleanup
-- Chains without code to clean up: no worker has ever claimed them, or they are not workflows. The
-- caller holds the locks of their first runs.
select root_id from runs
where (id {in roots} or (root_id {in roots} and retry_of is not null))
    and status in ('pending', 'running', 'sleeping', 'waiting')
    and (kind <> 'workflow'
        or (claim_count = 0 and retry_of is null and status in ('pending', 'sleeping')))

-- name: request_ends
-- The first request counts. Its position is set when the code gets it.
insert into steps (root_id, key, position, kind, status, attempt, run_attempt, output, started_at)
select coalesce(runs.segment_id, runs.root_id), 'cancel', 0, 'end', 'waiting', 1, runs.attempt, :request, :now
from runs
where (id {in roots} or (root_id {in roots} and retry_of is not null)) and kind = 'workflow'
    and status in ('pending', 'running', 'sleeping', 'waiting')
on conflict do nothing

-- name: move_end_requests
-- The code of a segment that continues as new never got the request: the next segment does.
update steps set root_id = item.after
{from items: before text, after text}
where steps.root_id = item.before and steps.kind = 'end' and steps.status = 'waiting'

-- name: statuses_of_chains
-- The open runs of chains, with their statuses: by one status the planner would read all that wait.
select id, status from runs
where (id {in roots} or (root_id {in roots} and retry_of is not null))
    and status in ('pending', 'running', 'sleeping', 'waiting')

-- name: wake_to_end
-- Code in memory does not know the new record: after a further claim it has to be replayed. The
-- claim that holds a run keeps its number; the next suspension counts it (settle_runs).
update runs
set wake_requested = case when status = 'running' then 2 else wake_requested end,
    claim_count = case when status = 'running' then claim_count else claim_count + 1 end,
    available_at = case when status = 'sleeping' then :now else available_at end,
    reason = case when status = 'sleeping' then null else reason end,
    status = case when status = 'sleeping' then 'pending' else status end
where (id {in roots} or (root_id {in roots} and retry_of is not null)) and kind = 'workflow'
    and status in ('pending', 'running', 'sleeping')
returning id, root_id

-- name: expire_runs
-- Only what no worker has ever claimed.
update runs
set status = 'skipped', reason = 'expired', finished_at = :now
where id {in ids} and claim_count = 0 and (status = 'pending' or status = 'sleeping')
returning id, parent_id, schedule_id, root_id, due_at, options
