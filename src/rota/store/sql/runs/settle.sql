-- name: settle_runs
-- No condition on `status`: by a CHECK, a run has a `lease_owner` exactly while it is running. With
-- such a condition the planner would read the index of running rows, which is full of dead entries
-- under load. Fenced: only the claim that holds the run may settle it. A wake-up that arrived during
-- the suspension makes the run pending here; otherwise it would be lost. With 2 something was recorded
-- from outside: one claim is counted, so that no code in memory continues without it.
update runs
set status = case when item.status = 'sleeping' and runs.wake_requested > 0
        then 'pending' else item.status end,
    claim_count = case when item.status = 'sleeping' and runs.wake_requested = 2
        then runs.claim_count + 1 else runs.claim_count end,
    reason = case when item.status = 'sleeping' and runs.wake_requested > 0
        then null else item.reason end,
    available_at = case when item.status = 'sleeping' and runs.wake_requested = 0
        then item.available_at else runs.available_at end,
    output = item.output, error = item.error, finished_at = item.finished_at,
    lease_owner = null, lease_until = null
{from items: id text, claim_count int, lease_owner text, status text, reason text, available_at int, output text, error text, finished_at int}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner = item.lease_owner
returning runs.id, runs.status

-- name: complete_runs
-- The common case of settle_runs on the hot path: completed, with at most an output.
update runs
set status = 'completed', reason = null, output = item.output, finished_at = :now,
    lease_owner = null, lease_until = null
{from items: id text, claim_count int, output text}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner = :worker_id

-- name: completed_of
-- Which of these claims have completed their runs, if the count says that not all have. A run that
-- has ended no longer names its worker, so its output is compared instead: after a failover that lost
-- a claim, another worker may have a claim of the same number.
select runs.id from runs {, items: id text, claim_count int, output text}
where runs.id = item.id and runs.claim_count = item.claim_count and runs.status = 'completed'
    and runs.output is not distinct from item.output
