-- The dependencies of an execution: its own beginning, and the executions that come before it.

-- name: has_begun
-- Whether a chain has recorded anything.
select exists (select 1 from steps where root_id = :root_id)

-- name: schedule_by_id
select {schedule columns} from runs where id = :id and kind = 'schedule'

-- name: ends_since
-- The state of the executions of a schedule that were due, or were started by hand, since an
-- instant: the last attempt of each.
select runs.status, runs.reason from runs
where runs.schedule_id = :id and runs.schedule_id is not null
    and (runs.due_at >= :since or (runs.due_at is null and runs.created_at >= :since))
    and {last attempt runs}
