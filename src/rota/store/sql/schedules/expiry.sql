-- Runs of schedules that end unless they begin in time.

-- name: put_expiries
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
