-- Executions of schedules, read back for their tracker. Inputs are omitted: they are large.

-- name: current_rows_of
-- The state of schedules. The options for their runs are large, and omitted. A condition on the kind
-- would make PostgreSQL read the index of all schedules.
select id, status, reason, available_at, due_at, cron_expr, spec, started_at from runs
where id {in ids}

-- name: open_executions
-- The chains of these schedules that have not ended. The range of the status shows SQLite the index.
select distinct schedule_id, root_id from runs
where schedule_id {in ids} and schedule_id is not null
    and finished_at is null and status >= 'pending'

-- name: occurrences_since
-- The outcomes of the occurrences after an instant: the first run of each chain, or a skipped row.
select schedule_id, root_id, status, reason, due_at from runs
where schedule_id = :id and schedule_id is not null and due_at > :since and retry_of is null
order by due_at, root_id

-- name: started_by_hand
-- Executions beside the schedule, which no occurrence reports; they are few.
select schedule_id, root_id from runs
where schedule_id {in ids} and schedule_id is not null and due_at is null and retry_of is null
    and created_at >= :since and status <> 'skipped'

-- name: latest_executions
-- The newest chains of a schedule, by the instant they were meant for or were started by hand.
select runs.root_id from runs
where runs.schedule_id = :id and runs.schedule_id is not null and runs.retry_of is null
    and runs.status <> 'skipped'
order by coalesce(runs.due_at, runs.created_at) desc, runs.id desc
limit :limit

-- name: attempts_of
-- Every attempt of these chains.
select runs.root_id, runs.id, runs.status, runs.reason, runs.trigger, runs.due_at, runs.attempt,
    runs.recoveries, runs.started_at, runs.finished_at, {query output_of_run}, {query error_of_run}
from runs
where runs.id {in roots} or (runs.root_id {in roots} and runs.retry_of is not null)
