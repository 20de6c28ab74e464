-- Turns of automations: one handler run each, and its checkpoints.

-- name: last_handler_run
select {handler run columns} from handler_runs
where root_id = :root_id order by started_at desc, run_id desc limit 1

-- name: last_handler_runs
-- The last of each chain; an outage may have given it a thousand.
select {handler run columns} from handler_runs
where run_id in (select max(run_id) from handler_runs where root_id {in root_ids} group by root_id)

-- name: put_handler_run
insert into handler_runs (run_id, root_id, namespace, automation, handler, kind, version, cause,
    phase, seen, prepared, state_before, reserved_count, started_at)
values (:run_id, :root_id, :namespace, :automation, :handler, :kind, :version, :cause, :phase, :seen,
    :prepared, :state_before, :reserved_count, :now)
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

-- name: commit_handler_run
update handler_runs
set phase = 'committed', logs = :logs, remark = :remark,
    prepared = coalesce(prepared, :prepared), state_after = :state_after,
    published_count = :published_count, error_kind = null, finished_at = :now
where run_id = :run_id

-- name: commit_producer
update handlers
set state = case when :keeps_state = 1 then state else :state end,
    state_run_id = case when :keeps_state = 1 then state_run_id else :run_id end,
    next_run_at = :next_run_at, queued_at = null, last_run_at = :now
where namespace = :namespace and automation = :automation and name = :name and kind = 'producer'

-- name: commit_consumer
-- It has seen all there was when it took nothing, or when nothing is left to take. What came
-- meanwhile has raised the mark beyond what this run has seen.
update handlers
set state = case when :keeps_state = 1 then state else :state end,
    state_run_id = case when :keeps_state = 1 then state_run_id else :run_id end,
    wake_at = :wake_at, last_run_at = :now,
    cleared = case when :seen <= marked and (:took = 0 or not exists (
        select 1 from topics
        where topics.namespace = :namespace and topics.automation = :automation
            and topics.consumer = :name and exists (
                select 1 from events where events.namespace = topics.namespace
                    and events.automation = topics.automation and events.topic = topics.name
                    and events.status = 'pending'))) then :seen else cleared end
where namespace = :namespace and automation = :automation and name = :name and kind = 'consumer'
returning marked, cleared

-- name: set_wake
update handlers set wake_at = :wake_at
where namespace = :namespace and automation = :automation and name = :name and kind = 'consumer'

-- name: queue_producers
update handlers set queued_at = :now
where namespace = :namespace and automation = :automation and kind = 'producer'
returning name
