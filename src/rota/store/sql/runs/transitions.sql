-- Runs: creation, claim, settlement. One text for both databases.

-- name: start_runs
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, due_at,
    schedule_id, retry_of, root_id, parent_id, attempt, recoveries, trigger, external_id,
    serial_key, limit_key, version, tags, options, input, created_at)
select item.id, item.namespace, item.kind, item.name, item.queue, item.priority, item.status,
    item.reason, item.available_at, item.due_at, item.schedule_id, item.retry_of, item.root_id,
    item.parent_id, item.attempt, item.recoveries, item.trigger, item.external_id,
    item.serial_key, item.limit_key, item.version, item.tags, item.options, item.input, :now
{from items: id text, namespace text, kind text, name text, queue text, priority int, status text, reason text, available_at int, due_at int, schedule_id text, retry_of text, root_id text, parent_id text, attempt int, recoveries int, trigger text, external_id text, serial_key text, limit_key text, version text, tags text, options text, input text}
where true
on conflict do nothing
returning id

-- name: start_alike
-- Many runs that share all but four columns.
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, root_id, attempt,
    recoveries, trigger, external_id, limit_key, version, tags, options, input, created_at)
select item.id, :namespace, :kind, :name, :queue, :priority, :status, :available_at, item.id, 1,
    0, :trigger, item.external_id, item.limit_key, :version, :tags, :options, item.input, :now
{from items: id text, external_id text, limit_key text, input text}
where true
on conflict do nothing

-- name: start_plain
-- The same where even those are few: an id and an input each. Only an id could be in the way, and
-- that of a start which is repeated: `on conflict` would ask every unique index, for each of them.
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, root_id, attempt,
    recoveries, trigger, version, tags, options, input, created_at)
select item.id, :namespace, :kind, :name, :queue, :priority, :status, :available_at, item.id, 1,
    0, :trigger, :version, :tags, :options, item.input, :now
{from items: id text, input text}

-- name: find_started
-- Who holds the external id, for starts that found it taken.
select runs.id, runs.namespace, runs.name, runs.external_id
from runs {, items: namespace text, name text, external_id text}
where runs.namespace = item.namespace and runs.name = item.name
    and runs.external_id = item.external_id

-- name: find_in_the_way
-- A chain that holds a unique key is known by its first run.
select case when serial_key = :serial_key then root_id else id end from runs
where (namespace = :namespace and serial_key = :serial_key and finished_at is null)
    or retry_of = :retry_of
    or (schedule_id = :schedule_id and due_at = :due_at and retry_of is null)
limit 1

-- name: find_ids
select id from runs where id {in ids}

-- name: put_payloads
insert into payloads (run_id, part, body)
select item.run_id, item.part, item.body
{from items: run_id text, part text, body text}
where true
on conflict (run_id, part) do update set body = excluded.body

-- name: claim_listed
-- Claims runs that were picked under a limit while the queue's row was locked.
update runs
set status = 'running', reason = null, lease_owner = :worker_id, lease_until = :lease_until,
    claim_count = claim_count + 1, wake_requested = 0, started_at = coalesce(started_at, :now)
where id {in ids} and status = 'pending'
returning {claim columns}

-- name: pick_unkeyed
-- Runs without a key, and all runs of a queue without a limit per key.
select id, priority, available_at from runs
where {claimable runs}
    and (limit_key is null or :per_key = 0)
order by priority desc, available_at, id
limit :limit
{skip_locked}

-- name: pick_keyed
-- A loose scan over the keys that wait, so that one busy key with a long line delays no other.
with recursive waiting (key) as (
    select min(limit_key) from runs
    where namespace = :namespace and queue = :queue and status = 'pending' and limit_key is not null
        and finished_at is null
    union all
    select (select min(limit_key) from runs
        where namespace = :namespace and queue = :queue and status = 'pending'
            and limit_key > waiting.key and finished_at is null)
    from waiting where waiting.key is not null
),
ranked as (
    select runs.id, runs.priority, runs.available_at,
        row_number() over (partition by waiting.key
            order by runs.priority desc, runs.available_at, runs.id) as place,
        (select count(*) from runs as busy where busy.namespace = :namespace and busy.queue = :queue
            and busy.limit_key = waiting.key and busy.status = 'running'
            and busy.finished_at is null) as busy_count
    from waiting join runs on runs.id in (
        select next.id from runs as next
        where next.namespace = :namespace and next.queue = :queue and next.status = 'pending'
            and next.limit_key = waiting.key and {served next} and next.recoveries < 2
            and next.finished_at is null
        order by next.priority desc, next.available_at, next.id
        limit :key_running_max)
    where waiting.key is not null
)
select id, priority, available_at from ranked
where place + busy_count <= :key_running_max
order by priority desc, available_at, id
limit :limit

-- name: pick_alone
-- The first of the runs that a worker without any other executes (core/runs/recovery).
select id, priority, available_at from runs
where namespace = :namespace and queue = :queue and status = 'pending' and recoveries >= 2
    and {served runs}
    and (:per_key = 0 or limit_key is null or :per_key > (
        select count(*) from runs as busy where busy.namespace = :namespace and busy.queue = :queue
            and busy.limit_key = runs.limit_key and busy.status = 'running'
            and busy.finished_at is null))
order by priority desc, available_at, id
limit 1
{skip_locked}

-- name: count_running
select count(*) from runs where namespace = :namespace and queue = :queue and status = 'running'

-- name: settle_runs
-- `lease_owner` says `running` (a check keeps the two equal). A condition on the status would make the
-- planner walk the index of running rows, which is full of dead entries under load.
-- Fenced: only the claim that holds the run may settle it. A wake-up that came while the run was
-- giving its slot back is honoured here, or it would be lost.
update runs
set status = case when item.status = 'sleeping' and runs.wake_requested = 1
        then 'pending' else item.status end,
    reason = case when item.status = 'sleeping' and runs.wake_requested = 1
        then null else item.reason end,
    available_at = case when item.status = 'sleeping' and runs.wake_requested = 0
        then item.available_at else runs.available_at end,
    output = item.output, error = item.error, finished_at = item.finished_at,
    lease_owner = null, lease_until = null
{from items: id text, claim_count int, lease_owner text, status text, reason text, available_at int, output text, error text, finished_at int}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner = item.lease_owner
returning runs.id, runs.status

-- name: complete_runs
-- The plain case of settle_runs, and the hot one: done, with at most an output.
update runs
set status = 'completed', reason = null, output = item.output, finished_at = :now,
    lease_owner = null, lease_until = null
{from items: id text, claim_count int, output text}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner = :worker_id

-- name: completed_of
-- Which of these claims have completed their runs, when the count says: not all. Who held a run is
-- gone with its end; an equal output is as good.
select runs.id from runs {, items: id text, claim_count int, output text}
where runs.id = item.id and runs.claim_count = item.claim_count and runs.status = 'completed'
    and runs.output is not distinct from item.output

-- name: renew_leases
update runs set lease_until = :lease_until
{from items: id text, claim_count int, lease_owner text}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner = item.lease_owner
returning runs.id

-- name: lock_roots
-- A sender to a chain and a reader in it take this lock first, so that neither can miss the other
-- between two attempts.
select id from runs where id {in roots} order by id
{lock}

-- name: poke_runs
-- Wake the open run of each chain: now if it waits for such a thing, at its next suspension if it
-- runs. One that sleeps for another reason (a delay, a back-off) looks when its time has come.
update runs
set wake_requested = 1,
    available_at = case when status = 'sleeping' then :now else available_at end,
    reason = case when status = 'sleeping' then null else reason end,
    status = case when status = 'sleeping' then 'pending' else status end
where (status = 'running'
        or (status = 'sleeping' and reason in ('signal', 'child', 'several')))
    and (id {in roots} or (root_id {in roots} and retry_of is not null))
returning id

-- name: wake_due
with due as (
    select id from runs
    where namespace = :namespace and status = 'sleeping' and available_at <= :now
    order by available_at
    limit :limit
    {skip_locked}
)
update runs set status = 'pending', reason = null
from due where runs.id = due.id and runs.status = 'sleeping'
returning runs.recoveries

-- name: next_due
select min(available_at) from runs
where namespace = :namespace and status = 'sleeping' and available_at is not null

-- name: lapsed_runs
select {run columns} from runs
where namespace = :namespace and status = 'running'
    and (lease_until < :now or lease_owner {in gone}) and not (id {in held})
order by lease_until
limit :limit
{skip_locked}

-- name: crash_runs
update runs
set status = 'crashed', reason = item.reason, finished_at = :now, lease_owner = null, lease_until = null,
    error = item.error
{from items: id text, claim_count int, reason text, error text}
where runs.id = item.id and runs.claim_count = item.claim_count
    and runs.lease_owner is not null
returning runs.id

-- name: stray_runs
-- Held by this worker as the database sees it, but the worker does not know them.
update runs set status = 'pending', lease_owner = null, lease_until = null
where lease_owner = :worker_id and status = 'running' and namespace = :namespace
    and not ((id || ':' || claim_count) {in held})
returning id

-- name: chains_below
-- One level of them. Asked for all levels at once, PostgreSQL reads the whole table.
select root_id from runs
where parent_id {in parents} and parent_id is not null and retry_of is null
    and trigger <> 'detached'

-- name: open_of_chains
select id from runs
where (id {in roots} or (root_id {in roots} and retry_of is not null))
    and status in ('pending', 'running', 'sleeping', 'waiting')

-- name: cancel_runs
update runs
set status = 'cancelled', reason = :reason, finished_at = :now, lease_owner = null, lease_until = null
where id {in ids} and status in ('pending', 'running', 'sleeping', 'waiting')
returning id, parent_id, schedule_id, root_id

-- name: expire_runs
-- Only what no worker has ever claimed.
update runs
set status = 'skipped', reason = 'expired', finished_at = :now
where id {in ids} and claim_count = 0 and (status = 'pending' or status = 'sleeping')
returning id, parent_id, schedule_id, root_id, due_at

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
select id from runs
where namespace = :namespace and external_id = :external_id
order by id desc limit :limit

-- name: chain_of
-- Every attempt of a chain, first to last.
select {run columns} from runs
where id = :root_id or (root_id = :root_id and retry_of is not null)
order by runs.attempt, runs.recoveries

-- name: ended_chains
-- The last attempts of these chains that are final.
select runs.root_id, runs.status, runs.reason,
    coalesce(runs.output, (select body from payloads
        where run_id = runs.id and part = 'output')) as output,
    coalesce(runs.error, (select body from payloads
        where run_id = runs.id and part = 'error')) as error
from runs
where (runs.id {in roots} or (runs.root_id {in roots} and runs.retry_of is not null))
    and runs.status in ('completed', 'failed', 'cancelled', 'crashed', 'skipped')
    and not exists (select 1 from runs as later where later.retry_of = runs.id)

-- name: count_by_status
select status, count(*) from runs where namespace = :namespace group by status

-- name: count_ready
select queue, name, count(*), min(available_at) from runs
where namespace = :namespace and status = 'pending'
group by queue, name
