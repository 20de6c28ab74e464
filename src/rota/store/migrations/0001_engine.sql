-- Runs, their wide payloads, steps, signals, queues and workers.
-- Times are integer microseconds (UTC). Keys are text that sorts by bytes.

create table runs (
    id {key} primary key,
    namespace {key} not null,
    kind {text} not null,
    name {key} not null,
    queue {key} not null,
    priority {int} not null,
    status {text} not null,
    reason {text},
    phase {text},
    available_at {int},
    due_at {int},
    schedule_id {key} references runs (id) on delete set null,
    cron_expr {text},
    spec {text},
    retry_of {key},
    root_id {key} not null,
    parent_id {key},
    attempt {int} not null,
    recoveries {int} not null,
    trigger {text} not null,
    external_id {key},
    serial_key {key},
    limit_key {key},
    lease_owner {key},
    lease_until {int},
    claim_count {int} not null default 0,
    wake_requested {int} not null default 0,
    version {text},
    tags {text},
    options {text},
    input {text},
    output {text},
    error {text},
    created_at {int} not null,
    started_at {int},
    finished_at {int},
    -- Chains of `or`, not `in`: SQLite builds a little index for every `in` of every row it checks,
    -- and proves from a chain, but not from an `in`, that a query may use a partial index.
    constraint runs_status check (status = 'pending' or status = 'running' or status = 'completed'
        or status = 'sleeping' or status = 'failed' or status = 'cancelled' or status = 'crashed'
        or status = 'waiting' or status = 'scheduled' or status = 'paused' or status = 'skipped'),
    constraint runs_finished check ((finished_at is not null) = (status = 'completed'
        or status = 'failed' or status = 'cancelled' or status = 'crashed' or status = 'skipped')),
    constraint runs_leased check ((status = 'running') = (lease_owner is not null)),
    constraint runs_lease_whole check ((lease_owner is null) = (lease_until is null)),
    constraint runs_due check (available_at is not null
        or (status <> 'pending' and status <> 'scheduled'))
) {strict};

-- What a claim reads, in its order. Pending means ready now, so no time is compared.
create index runs_ready on runs (namespace, queue, priority desc, available_at, id)
    where status = 'pending';
-- The timer: by the instant they are due, sleepers, schedules, and pauses that end by themselves.
create index runs_timer on runs (namespace, status, available_at)
    where available_at is not null
        and (status = 'sleeping' or status = 'scheduled' or status = 'paused');
create index runs_running on runs (namespace, queue, lease_until) where status = 'running';
create index runs_limit_keys on runs (namespace, queue, limit_key, status, priority desc, available_at, id)
    where limit_key is not null and (status = 'pending' or status = 'running');
create index runs_children on runs (parent_id) where parent_id is not null;
create index runs_chain on runs (root_id) where retry_of is not null;

-- Each attempt has at most one successor.
create unique index runs_retry_once on runs (retry_of) where retry_of is not null;
-- No occurrence fires twice, whoever fires it. A retry is another row of the same occurrence, and
-- one that was skipped may be run later by a backfill: those are in it by their own id, so that it
-- also finds all runs of a schedule, for its ledger and for the foreign key when it is deleted.
create unique index runs_occurrence on runs (schedule_id, due_at,
    (case when retry_of is null and status <> 'skipped' then '' else id end))
    where schedule_id is not null;
-- Idempotent start.
create unique index runs_external on runs (namespace, name, external_id) where external_id is not null;
-- At most one open run per serial key.
create unique index runs_serial on runs (namespace, serial_key)
    where serial_key is not null and (status = 'pending' or status = 'running'
        or status = 'sleeping' or status = 'waiting');

-- Bodies over the inline limit. An input belongs to the chain, output and error to the attempt.
create table payloads (
    run_id {key} not null references runs (id) on delete cascade,
    part {text} not null check (part in ('input', 'output', 'error')),
    body {text} not null,
    primary key (run_id, part)
) {strict};

-- Steps belong to the chain. No foreign key: every write joins its run to check the fence anyway.
create table steps (
    root_id {key} not null,
    key {key} not null,
    position {int} not null,
    kind {text} not null,
    status {text} not null check (status in ('completed', 'failed', 'waiting')),
    attempt {int} not null,
    run_attempt {int} not null,
    output {text},
    error {text},
    wake_at {int},
    child_id {key},
    started_at {int} not null,
    finished_at {int},
    primary key (root_id, key),
    constraint steps_finished check ((finished_at is not null) = (status <> 'waiting'))
) {clustered};

create table signals (
    id {key} primary key,
    root_id {key} not null references runs (id) on delete cascade,
    name {key} not null,
    body {text},
    created_at {int} not null,
    taken_by {text}
) {strict};
create index signals_by_run on signals (root_id, name, id);

create table queues (
    namespace {key} not null,
    name {key} not null,
    running_max {int},
    key_running_max {int},
    rate_count {int},
    rate_per_us {int},
    ready_at {int} not null default 0,
    paused {int} not null default 0,
    primary key (namespace, name)
) {strict};

create table workers (
    id {key} primary key,
    namespace {key} not null,
    host {text} not null,
    pid {int} not null,
    pid_started {text} not null,
    queues {text} not null,
    names {text} not null,
    seats {int} not null,
    status {text} not null check (status in ('online', 'draining', 'offline')),
    version {text} not null,
    started_at {int} not null,
    heartbeat_at {int} not null,
    stopped_at {int}
) {strict};
create index workers_alive on workers (namespace, heartbeat_at) where status <> 'offline';
