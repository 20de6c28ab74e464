-- Runs that only some versions of the code may execute.

-- name: refuse_versions
-- In the transaction that made them pending. The time of the wait counts from here.
update runs set refused_versions = item.refused, available_at = :now
{from items: id text, claim_count int, refused text}
where runs.id = item.id and runs.claim_count = item.claim_count and runs.status = 'pending'

-- name: refused_runs
select id, name, queue, refused_versions, available_at from runs
where namespace = :namespace and refused_versions > '' and status = 'pending'
limit :limit

-- name: release_refused
update runs set refused_versions = :refused, reason = null
where id {in ids} and status = 'pending' and refused_versions > ''
returning id

-- name: pin_run
update runs set pinned_version = :version
where id = :id and claim_count = :claim_count and lease_owner = :worker_id
returning id

-- name: count_pinned
select pinned_version, count(*) from runs
where namespace = :namespace and pinned_version is not null and finished_at is null
group by pinned_version
