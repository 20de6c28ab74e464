-- name: renew_leases
update runs set lease_until = :lease_until
{from items: id text, claim_count int, lease_owner text}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner = item.lease_owner
returning runs.id, runs.wake_requested

-- name: lapsed_runs
select {run columns} from runs
where namespace = :namespace and status = 'running'
    and (lease_until < :now or lease_owner {in gone}) and not (id {in held})
order by lease_until
limit :limit
{skip_locked}

-- name: crash_runs
-- Those of `lapsed_runs`, in the same transaction: their rows are locked.
update runs
set status = 'crashed', reason = item.reason, finished_at = :now, lease_owner = null, lease_until = null,
    error = item.error
{from items: id text, claim_count int, reason text, error text}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner is not null
returning runs.id

-- name: stray_runs
-- The database says that this worker holds them, but the worker does not know them.
update runs set status = 'pending', lease_owner = null, lease_until = null
where lease_owner = :worker_id and status = 'running' and namespace = :namespace
    and not ((id || ':' || claim_count) {in held})
returning id
