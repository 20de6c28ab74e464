-- name: resolve_run
-- A new attempt: what failed for good in the last one is tried again.
update runs set status = 'pending', reason = null, available_at = :now, error = null,
    attempt = attempt + 1
where id = :id and status = 'waiting'
returning id, coalesce(schedule_id, root_id), options

-- name: set_options
update runs set options = :options where id = :id

-- name: forget_error
delete from payloads where run_id = :run_id and part = 'error'
