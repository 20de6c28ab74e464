-- name: output_of_run
coalesce(runs.output, (select body from payloads where run_id = runs.id and part = 'output'))

-- name: error_of_run
coalesce(runs.error, (select body from payloads where run_id = runs.id and part = 'error'))

-- name: get_run
select {run columns} from runs where namespace = :namespace and id = :id

-- name: runs_beginning
select id from runs
where namespace = :namespace and id >= :prefix and id < :beyond
order by id desc limit :limit

-- name: runs_ending
-- A scan of the primary key alone: people ask for a short id, programs do not.
select id from runs where id like :ending order by id desc limit :limit

-- name: runs_called
select runs.id
from ({query names_with_external_ids}) as names
join runs on runs.namespace = :namespace and runs.name = names.name
    and runs.external_id = :external_id and runs.external_id is not null
order by runs.id desc limit :limit

-- name: chain_of
-- Every attempt of a chain, first to last.
select {run columns} from runs
where id = :root_id or (root_id = :root_id and retry_of is not null)
order by coalesce(runs.segment_id, runs.root_id), runs.attempt, runs.recoveries

-- name: ended_chains
-- The last attempts of these chains that are final.
select runs.root_id, runs.status, runs.reason, {query output_of_run}, {query error_of_run}
from runs
where (runs.id {in roots} or (runs.root_id {in roots} and runs.retry_of is not null))
    and runs.status in ('completed', 'failed', 'cancelled', 'crashed', 'skipped')
    and {last attempt runs}

-- name: count_by_status
-- Without the statuses of schedules, which are not runs.
select status, count(*) from runs
where namespace = :namespace and status <> 'scheduled' and status <> 'paused'
group by status

-- name: count_ready
select queue, name, count(*), min(available_at) from runs
where namespace = :namespace and status = 'pending'
group by queue, name
