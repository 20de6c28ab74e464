-- Queries that must return no row. The tests and `rota doctor` share them.

-- name: broken_lease
select id, status from runs
where (status = 'running') <> (lease_owner is not null)
    or (lease_owner is null) <> (lease_until is null)

-- name: broken_finish
select id, status from runs
where (finished_at is not null)
    <> (status in ('cancelled', 'completed', 'crashed', 'failed', 'skipped'))

-- name: broken_way_forward
-- An open run must be claimable, held, timed, or waiting for something that can still come.
select id, status from runs
where status = 'sleeping' and available_at is null
    and coalesce(reason, '') not in ('signal', 'child', 'several', 'turn', 'backfill', 'event', 'paused')

-- name: broken_occurrence
select schedule_id, due_at, count(*) from runs
where schedule_id is not null and due_at is not null and retry_of is null and status <> 'skipped'
group by schedule_id, due_at having count(*) > 1

-- name: queued_behind_none
-- Queued runs without an earlier run that continues, one of each schedule. The including query adds
-- the reason.
select waiting.id, waiting.schedule_id from (
    select min(id) as id, schedule_id, reason from runs
    where status = 'sleeping' and available_at is null group by schedule_id, reason
    union all
    select min(id) as id, schedule_id, reason from runs
    where status = 'sleeping' and available_at is not null group by schedule_id, reason
) as waiting
where {query no_earlier_run}

-- name: broken_turn
{query queued_behind_none} and waiting.reason = 'turn'

-- name: broken_backfill
{query queued_behind_none} and waiting.reason = 'backfill'

-- name: broken_successor
select retry_of, count(*) from runs
where retry_of is not null group by retry_of having count(*) > 1

-- name: broken_chain
-- A successor belongs to the chain of the one it follows, which is over.
select successor.id, before.id, before.status
from runs as successor join runs as before on before.id = successor.retry_of
where successor.root_id <> before.root_id
    or before.status not in ('failed', 'crashed', 'cancelled', 'completed')

-- name: broken_open_chain
-- Each part has an index that holds nothing else.
select root_id, count(*) from (
    select root_id from runs where status = 'pending'
    union all
    select root_id from runs where status = 'running'
    union all
    select root_id from runs where status = 'sleeping' and available_at is not null
    union all
    select root_id from runs where status = 'sleeping' and available_at is null
    union all
    select root_id from runs where status = 'waiting'
) as unfinished
group by root_id having count(*) > 1

-- name: broken_serial
select namespace, serial_key, count(*) from runs
where serial_key is not null and finished_at is null
    and status in ('pending', 'running', 'sleeping', 'waiting')
group by namespace, serial_key having count(*) > 1

-- name: broken_step
select steps.root_id, steps.key from steps
where not exists (select 1 from runs where runs.id = steps.root_id)

-- name: broken_child_wait
-- A parent that waits for children only must have one that has not ended.
select parent.id, parent.root_id from runs as parent
where parent.status = 'sleeping' and parent.reason = 'child' and parent.available_at is null
    and not exists (
    select 1 from runs as child
    where child.parent_id = parent.root_id
        and child.status in ('pending', 'running', 'sleeping', 'waiting'))

-- name: broken_orphan
-- A child of a cancelled chain must not continue, unless it was started detached.
select child.id, child.status from runs as child join runs as parent on parent.id = child.parent_id
where child.status in ('pending', 'running', 'sleeping') and parent.status = 'cancelled'
    and {last attempt parent}
    and not exists (
    select 1 from runs as first where first.id = child.root_id and first.trigger = 'detached')

-- name: broken_automation_turn
-- An active automation has its one open run.
select automations.namespace, automations.name from automations
where automations.status = 'active'
    and not exists (select 1 from runs where runs.namespace = automations.namespace
        and runs.serial_key = 'automation:' || automations.name and runs.finished_at is null)

-- name: broken_automation_wait
-- An automation that waits for a person says why.
select id, name from runs
where kind = 'automation' and status = 'waiting' and coalesce(reason, '') = ''

-- name: broken_reservation
-- A reserved event belongs to a chain that continues.
select events.id, events.reserved_by from events
where events.status = 'reserved' and events.reserved_by is not null and not exists (
    select 1 from runs as owner join runs as latest
        on latest.id = owner.root_id
            or (latest.root_id = owner.root_id and latest.retry_of is not null)
    where owner.id = events.reserved_by
        and latest.status in ('pending', 'running', 'sleeping', 'waiting'))

-- name: broken_mutation
-- A chain has at most one side effect that is not a certain failure.
select root_id, count(*) from mutations
where status <> 'failed' group by root_id having count(*) > 1

-- name: broken_doubt
-- A side effect that is not settled belongs to a chain that continues.
select mutations.id, mutations.status from mutations
where mutations.status <> 'applied' and mutations.status <> 'failed' and mutations.status <> 'skipped'
    and not exists (select 1 from runs
        where (runs.id = mutations.root_id
            or (runs.root_id = mutations.root_id and runs.retry_of is not null))
        and runs.status in ('pending', 'running', 'sleeping', 'waiting'))

-- name: broken_consumption
-- No event is consumed by two runs.
select event_id, count(*) from reservations
where act = 'consumed' group by event_id having count(*) > 1

-- name: broken_commit
-- A committed handler run is a completed run, and the other way round.
select handler_runs.run_id, handler_runs.phase, runs.status
from handler_runs join runs on runs.id = handler_runs.run_id
where (handler_runs.phase = 'committed') <> (runs.status = 'completed')

-- name: broken_applied
-- An applied change has moved its run on.
select mutations.id, handler_runs.phase from mutations
join handler_runs on handler_runs.run_id = mutations.run_id
where mutations.status = 'applied' and handler_runs.phase in ('executing', 'preparing', 'prepared')
