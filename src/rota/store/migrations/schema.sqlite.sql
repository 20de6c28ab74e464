-- The whole schema on SQLite, after all migrations. Made by `python -m scripts.schema`.

CREATE TABLE migrations (
    number integer primary key, name text not null, checksum text not null,
    applied_at integer not null
) strict;

CREATE TABLE payloads (
    run_id text not null references runs (id) on delete cascade,
    part text not null check (part in ('input', 'output', 'error')),
    body text not null,
    primary key (run_id, part)
) strict;

CREATE TABLE queues (
    namespace text not null,
    name text not null,
    running_max integer,
    key_running_max integer,
    rate_count integer,
    rate_per_us integer,
    ready_at integer not null default 0,
    paused integer not null default 0,
    primary key (namespace, name)
) strict;

CREATE TABLE runs (
    id text primary key,
    namespace text not null,
    kind text not null,
    name text not null,
    queue text not null,
    priority integer not null,
    status text not null,
    reason text,
    phase text,
    available_at integer,
    due_at integer,
    schedule_id text references runs (id) on delete set null,
    cron_expr text,
    spec text,
    retry_of text,
    root_id text not null,
    parent_id text,
    attempt integer not null,
    recoveries integer not null,
    trigger text not null,
    external_id text,
    serial_key text,
    limit_key text,
    lease_owner text,
    lease_until integer,
    claim_count integer not null default 0,
    wake_requested integer not null default 0,
    version text,
    tags text,
    options text,
    input text,
    output text,
    error text,
    created_at integer not null,
    started_at integer,
    finished_at integer,
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
) strict;

CREATE TABLE signals (
    id text primary key,
    root_id text not null references runs (id) on delete cascade,
    name text not null,
    body text,
    created_at integer not null,
    taken_by text
) strict;

CREATE TABLE steps (
    root_id text not null,
    key text not null,
    position integer not null,
    kind text not null,
    status text not null check (status in ('completed', 'failed', 'waiting')),
    attempt integer not null,
    run_attempt integer not null,
    output text,
    error text,
    wake_at integer,
    child_id text,
    started_at integer not null,
    finished_at integer,
    primary key (root_id, key),
    constraint steps_finished check ((finished_at is not null) = (status <> 'waiting'))
) strict;

CREATE TABLE workers (
    id text primary key,
    namespace text not null,
    host text not null,
    pid integer not null,
    pid_started text not null,
    queues text not null,
    names text not null,
    seats integer not null,
    status text not null check (status in ('online', 'draining', 'offline')),
    version text not null,
    started_at integer not null,
    heartbeat_at integer not null,
    stopped_at integer
) strict;

CREATE INDEX runs_by_schedule on runs (schedule_id, due_at) where schedule_id is not null;

CREATE INDEX runs_chain on runs (root_id) where retry_of is not null;

CREATE INDEX runs_children on runs (parent_id) where parent_id is not null;

CREATE UNIQUE INDEX runs_external on runs (namespace, name, external_id) where external_id is not null;

CREATE INDEX runs_limit_keys on runs (namespace, queue, limit_key, status, priority desc, available_at, id)
    where limit_key is not null and (status = 'pending' or status = 'running');

CREATE UNIQUE INDEX runs_occurrence on runs (schedule_id, due_at)
    where schedule_id is not null and retry_of is null and status <> 'skipped';

CREATE INDEX runs_pauses on runs (namespace, available_at)
    where status = 'paused' and available_at is not null;

CREATE INDEX runs_ready on runs (namespace, queue, priority desc, available_at, id)
    where status = 'pending';

CREATE UNIQUE INDEX runs_retry_once on runs (retry_of) where retry_of is not null;

CREATE INDEX runs_running on runs (namespace, queue, lease_until) where status = 'running';

CREATE INDEX runs_schedule_open on runs (schedule_id, due_at)
    where schedule_id is not null and (status = 'pending' or status = 'running'
        or status = 'sleeping' or status = 'waiting');

CREATE INDEX runs_scheduled on runs (namespace, available_at) where status = 'scheduled';

CREATE UNIQUE INDEX runs_serial on runs (namespace, serial_key)
    where serial_key is not null and (status = 'pending' or status = 'running'
        or status = 'sleeping' or status = 'waiting');

CREATE INDEX runs_templates on runs (namespace, name)
    where (status = 'scheduled' or status = 'paused');

CREATE INDEX runs_timer on runs (namespace, available_at)
    where status = 'sleeping' and available_at is not null;

CREATE INDEX signals_by_run on signals (root_id, name, id);

CREATE INDEX workers_alive on workers (namespace, heartbeat_at) where status <> 'offline';

CREATE VIEW readable_runs as
select id, namespace, kind, name, queue, priority,
    status || coalesce(':' || reason, '') as status,
    attempt, recoveries, trigger, external_id, retry_of, root_id, parent_id, lease_owner,
    strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1000000.0, 'unixepoch') as available,
    strftime('%Y-%m-%dT%H:%M:%fZ', due_at / 1000000.0, 'unixepoch') as due,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') as created,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') as finished,
    strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1000000.0, 'unixepoch') as lease,
    (finished_at - started_at) / 1000000.0 as took_s,
    input, output, error
from runs;

CREATE VIEW readable_steps as
select root_id, position, key, kind, status, attempt, output, error, child_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', wake_at / 1000000.0, 'unixepoch') as wakes,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') as finished
from steps;

CREATE VIEW readable_workers as
select id, namespace, host, pid, queues, seats, status, version,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at / 1000000.0, 'unixepoch') as heartbeat,
    strftime('%Y-%m-%dT%H:%M:%fZ', stopped_at / 1000000.0, 'unixepoch') as stopped
from workers;
