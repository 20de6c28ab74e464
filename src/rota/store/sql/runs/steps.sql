-- Steps: what a segment of a chain has already done. `root_id` is the first run of the segment.

-- name: put_steps
-- A join with the run's claim fences it. The share lock keeps a reaper from taking the run between
-- the check and the commit. So a recovery always sees every step recorded before it.
insert into steps (root_id, key, position, kind, status, attempt, run_attempt, output,
    error, wake_at, child_id,
    started_at, finished_at, digest)
select coalesce(runs.segment_id, runs.root_id), item.key, item.position, item.kind, item.status, item.attempt, item.run_attempt, item.output,
    item.error, item.wake_at, item.child_id, item.started_at, item.finished_at, item.digest
from runs {, items: run_id text, claim_count int, lease_owner text, key text, position int, kind text, status text, attempt int, run_attempt int, output text, error text, wake_at int, child_id text, started_at int, finished_at int, digest int}
where runs.id = item.run_id and runs.claim_count = item.claim_count
    and runs.lease_owner = item.lease_owner
{share}
on conflict (root_id, key) do update
set position = excluded.position, status = excluded.status, attempt = excluded.attempt, run_attempt = excluded.run_attempt,
    output = excluded.output,
    error = excluded.error, wake_at = excluded.wake_at, started_at = excluded.started_at,
    finished_at = excluded.finished_at, digest = excluded.digest

-- name: record_steps
-- A finished step never changes; the same write sent again after a broken connection changes
-- nothing.
{query put_steps}
where steps.status <> 'completed' or steps.started_at = excluded.started_at

-- name: record_progress
-- Reports of running steps, in place of their results. One that arrives late changes nothing: the
-- end of an attempt wins, and so does a later attempt.
{query put_steps}
where (steps.status = 'waiting' and steps.run_attempt <= excluded.run_attempt)
    or steps.run_attempt < excluded.run_attempt
    or (steps.run_attempt = excluded.run_attempt and steps.attempt < excluded.attempt)

-- name: recorded_of
-- Which of these steps are stored as they were written, if the count says that not all are.
select steps.root_id, steps.key
from steps join runs on coalesce(runs.segment_id, runs.root_id) = steps.root_id {, items: run_id text, claim_count int, lease_owner text, key text, started_at int}
where runs.id = item.run_id and runs.claim_count = item.claim_count
    and runs.lease_owner = item.lease_owner and steps.key = item.key
    and steps.started_at = item.started_at

-- name: step_of
select {step columns} from steps where root_id = :root_id and key = :key

-- name: steps_of
select {step columns} from steps where root_id {in roots} order by root_id, position

-- name: steps_after
select {step columns} from steps
where root_id = :root_id and position >= :position and (position > :position or key > :key)
order by position, key limit :limit

-- name: forget_failures
-- The failures that ended an attempt do not belong to the next one (see workflows/workflow_run.py). A
-- finished wait for a signal never starts again under its key. The key is renamed, so that the next
-- attempt can use it.
update steps set wake_at = 0,
    key = case kind when 'signal' then steps.key || ' (attempt ' || run_attempt || ')'
        else steps.key end
{from items: root_id text, key text}
where steps.root_id = item.root_id and steps.key = item.key and steps.status = 'failed'

-- name: forget_handling
-- Nor do the calls that handled these failures. The next attempt makes them again under their keys.
update steps set wake_at = 0, key = steps.key || ' (attempt ' || run_attempt || ')'
{from items: root_id text, key text}
where steps.root_id = item.root_id and steps.key = item.key

-- name: ends_of
-- Requests to end a chain, and the ends that its code got.
select {step columns} from steps
where root_id = :root_id and key in ('cancel', 'timeout') and kind = 'end'

-- name: forget_end
-- A further attempt of a chain that was ended gracefully continues where its code was at that
-- moment. So it forgets the end, the calls that it cancelled and all that were made after it.
update steps set wake_at = 0, key = key || ' (attempt ' || run_attempt || ')'
where root_id = :root_id and (key = :key or position > :position
    or (status = 'failed' and finished_at >= :ended_at)) and (wake_at is null or wake_at <> 0)

-- name: copy_steps
-- They count as those of the first attempt. Forgotten calls and ends stay behind.
insert into steps (root_id, key, position, kind, status, attempt, run_attempt, output,
    error, wake_at, child_id,
    started_at, finished_at, digest)
select :to_root, key, position, kind, status, attempt, 1, output,
    error, wake_at, child_id,
    started_at, finished_at, digest
from steps
where root_id = :from_root and position < :position and kind <> 'end'
    and (wake_at is null or (status <> 'failed' and wake_at <> 0))

-- name: parents_of
select id, parent_id from runs where id {in ids}

-- name: held_claims
select id, claim_count, lease_owner from runs
where id {in ids} and status = 'running'
order by id
{lock}
