-- Handler runs of automations, and their checkpoints.

-- name: last_handler_run
select {handler run columns} from handler_runs
where root_id = :root_id order by started_at desc, run_id desc limit 1

-- name: last_handler_runs
-- The last of each chain; an outage may have given it a thousand.
select {handler run columns} from handler_runs
where run_id in (select max(run_id) from handler_runs where root_id {in root_ids} group by root_id)

-- name: put_handler_runs
insert into handler_runs (run_id, root_id, namespace, automation, handler, kind, version, cause,
    phase, seen, prepared, state_before, reserved_count, started_at)
select item.run_id, item.root_id, :namespace, item.automation, item.handler, item.kind, item.version,
    item.cause, item.phase, item.seen, item.prepared, item.state_before, item.reserved_count, :now
{from items: run_id text, root_id text, automation text, handler text, kind text, version int, cause text, phase text, seen int, prepared text, state_before text, reserved_count int}
where true
on conflict (run_id) do update
set handler = excluded.handler, kind = excluded.kind, version = excluded.version,
    cause = excluded.cause, phase = excluded.phase, seen = excluded.seen,
    state_before = excluded.state_before, prepared = excluded.prepared

-- name: prepare_handler_run
update handler_runs
set phase = :phase, prepared = :prepared, remark = :remark, logs = :logs, reserved_count = :reserved_count
where run_id = ({query held_run})
returning run_id

-- name: move_handler_run
update handler_runs set phase = :phase where run_id = ({query held_run})
returning run_id

-- name: stop_handler_run
update handler_runs
set phase = :phase, logs = :logs, remark = :remark, error_kind = :error_kind, finished_at = :finished_at
where run_id = :run_id

-- name: ended_handler_run
-- The columns of the items that the statements of a commit share: one item for each handler run.
run_id text, namespace text, automation text, handler text, kind text, state text, keeps_state int,
    next_run_at int, wake_at int, took int, seen int, used text, logs text, remark text,
    prepared text, published_count int

-- name: commit_handler_runs
update handler_runs
set phase = 'committed', logs = item.logs, remark = item.remark,
    prepared = coalesce(handler_runs.prepared, item.prepared), state_after = item.state,
    published_count = item.published_count, error_kind = null, finished_at = :now
{from items: {query ended_handler_run}}
where handler_runs.run_id = item.run_id

-- name: commit_handlers
-- A consumer has seen all there was when it took nothing, or when nothing is left to take. Events
-- that came meanwhile have raised the mark beyond what this run has seen. A handler that is gone, or
-- is of another kind now, keeps nothing.
update handlers
set state = case when item.keeps_state = 1 then handlers.state else item.state end,
    state_run_id = case when item.keeps_state = 1 then handlers.state_run_id else item.run_id end,
    next_run_at = item.next_run_at, queued_at = null, wake_at = item.wake_at, last_run_at = :now,
    cleared = case when item.seen <= handlers.marked and (item.took = 0 or not exists (
        select 1 from topics
        where topics.namespace = handlers.namespace and topics.automation = handlers.automation
            and topics.consumer = handlers.name and exists (
                select 1 from events where events.namespace = topics.namespace
                    and events.automation = topics.automation and events.topic = topics.name
                    and events.status = 'pending'))) then item.seen else handlers.cleared end
{from items: {query ended_handler_run}}
where handlers.namespace = item.namespace and handlers.automation = item.automation
    and handlers.name = item.handler and handlers.kind = item.kind
returning handlers.automation, handlers.marked, handlers.cleared

-- name: leave_out_check
update handlers set next_run_at = :next_run_at, queued_at = null, last_run_at = :now
where namespace = :namespace and automation = :automation and name = :name and kind = 'producer'

-- name: set_wake
update handlers set wake_at = :wake_at
where namespace = :namespace and automation = :automation and name = :name and kind = 'consumer'

-- name: queue_producers
update handlers set queued_at = :now
where namespace = :namespace and automation = :automation and kind = 'producer'
returning name
