-- Views of automations. Only reads.

-- name: list_events
select {event columns} from events
where namespace = :namespace and automation = :automation
    and (:topic = '' or topic = :topic) and (:status = '' or status = :status)
    and (:before = '' or id < :before)
order by id desc limit :limit

-- name: inputs_with_counts
-- Inputs with the number of their events, of unfinished ones and of skipped ones. An input is done
-- when it has events and none of them is unfinished; skipped, when all are.
select {input columns},
    count(events.id),
    coalesce(sum(case when events.status = 'pending' or events.status = 'reserved' then 1 else 0 end), 0),
    coalesce(sum(case when events.status = 'skipped' then 1 else 0 end), 0)
from inputs
left join causes on causes.input_id = inputs.id
left join events on events.id = causes.event_id
where inputs.namespace = :namespace and inputs.automation = :automation

-- name: list_inputs
{query inputs_with_counts}
    and (:before = '' or inputs.id < :before) and (:id = '' or inputs.id = :id)
group by inputs.id
order by inputs.id desc limit :limit

-- name: list_unfinished_inputs
{query inputs_with_counts}
    and inputs.skipped_at is null and inputs.created_at <= :until
group by inputs.id
having count(events.id) = 0
    or sum(case when events.status = 'pending' or events.status = 'reserved' then 1 else 0 end) > 0
order by inputs.id limit :limit

-- name: outputs_of_input
-- By the history of reservations, which outlives transfer and release.
select distinct {mutation columns} from mutations
join reservations on reservations.run_id = mutations.run_id
join causes on causes.event_id = reservations.event_id
where causes.input_id = :input_id and mutations.status <> 'failed'
order by mutations.id desc

-- name: inputs_of_output
select distinct {input columns} from inputs
join causes on causes.input_id = inputs.id
join reservations on reservations.event_id = causes.event_id
join mutations on mutations.run_id = reservations.run_id
where mutations.id = :id and mutations.namespace = :namespace
order by inputs.id

-- name: list_outputs
select {mutation columns} from mutations
where namespace = :namespace and automation = :automation
    and (:status = '' or status = :status) and (:before = '' or id < :before)
order by id desc limit :limit

-- name: activity
-- A run that has committed shows no error.
select {handler run columns}, runs.status, runs.reason, runs.attempt, runs.retry_of,
    case when runs.status <> 'completed' then {query error_of_run} end
from handler_runs join runs on runs.id = handler_runs.run_id

-- name: list_activity
{query activity}
where handler_runs.namespace = :namespace and handler_runs.automation = :automation
    and (:before = '' or handler_runs.run_id < :before)
order by handler_runs.run_id desc limit :limit

-- name: find_activity
{query activity}
where handler_runs.run_id = :run_id

-- name: count_pending
select automation, topic, count(*) from events
where namespace = :namespace and automation {in automations} and status = 'pending'
group by automation, topic order by automation, topic

-- name: errors_of_runs
-- The error of each of these runs, the newest attempt of a chain last.
select runs.root_id, {query error_of_run} from runs
where runs.id {in ids}
order by runs.attempt, runs.recoveries

-- name: count_forgotten_events
-- Used events of an input with a pruned run, and the ledger with it.
select count(*) from causes join events on events.id = causes.event_id
where causes.input_id = :input_id and events.status = 'consumed'
    and not exists (select 1 from reservations
        where reservations.event_id = events.id and reservations.act = 'consumed')

-- name: users_of_events
select event_id, run_id from reservations
where event_id {in ids} and (act = 'consumed' or act = 'skipped')
order by at

-- name: late_open_runs
-- Open runs with a last attempt that took too long.
select name, root_id, id, retry_of from runs
where namespace = :namespace and kind = 'automation' and reason = 'timeout'
    and (status = 'sleeping' or status = 'waiting') and finished_at is null
order by name limit :limit

-- name: reservations_of_run
select events.topic, events.message_id, reservations.act, reservations.at
from reservations join events on events.id = reservations.event_id
where reservations.run_id = :run_id
order by reservations.at, case when reservations.act = 'reserved' then 0 else 1 end, events.id
