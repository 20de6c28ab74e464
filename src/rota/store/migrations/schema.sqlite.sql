-- The whole schema on SQLite, after all migrations. Made by `python -m scripts.schema`.

CREATE TABLE ai_limits (
    namespace text not null,
    name text not null,
    state text not null,
    primary key (namespace, name)
) strict;

CREATE TABLE answers (
    id text primary key,
    namespace text not null,
    automation text not null,
    act text not null,
    mutation_id text,
    run_id text references runs (id) on delete cascade,
    event_id text references events (id) on delete cascade,
    input_id text references inputs (id) on delete cascade,
    person text not null,
    note text,
    at integer not null,
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade
) strict;

CREATE TABLE api_tokens (
    id text primary key,
    namespace text not null,
    name text not null,
    digest text not null,
    role text not null,
    created_at integer not null,
    expires_at integer,
    last_used_at integer,
    revoked_at integer,
    constraint api_tokens_role check (role = 'read' or role = 'operate' or role = 'admin')
) strict;

CREATE TABLE archive (
    month text not null,
    root_id text not null,
    namespace text not null,
    finished_at integer not null,
    body text not null,
    primary key (root_id, month)
) strict;

CREATE TABLE audit (
    id text primary key,
    namespace text not null,
    at integer not null,
    who text not null,
    verb text not null,
    target text not null,
    request_id text not null,
    detail text
) strict;

CREATE TABLE automations (
    namespace text not null,
    name text not null,
    status text not null,
    queue text not null,
    version integer not null,
    digest text not null,
    failures integer not null default 0,
    fixes integer not null default 0,
    created_at integer not null,
    updated_at integer not null, waits_for text, waits_since integer, waits_count integer not null default 0,
    primary key (namespace, name),
    constraint automations_status check (status = 'active' or status = 'paused' or status = 'archived')
) strict;

CREATE TABLE causes (
    event_id text not null references events (id) on delete cascade,
    input_id text not null references inputs (id) on delete cascade,
    primary key (event_id, input_id)
) strict;

CREATE TABLE code_digests (
    code_id text not null references code_sets (id) on delete cascade,
    name text not null,
    digest text not null,
    primary key (code_id, name)
) strict, without rowid;

CREATE TABLE code_sets (
    id text primary key,
    namespace text not null,
    seen_at integer not null
) strict;

CREATE TABLE definitions (
    namespace text not null,
    automation text not null,
    version integer not null,
    digest text not null,
    made_by text not null,
    graph text not null,
    source text,
    comment text,
    created_at integer not null, parts text, restores integer,
    primary key (namespace, automation, version),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade,
    constraint definitions_made_by check (made_by = 'deploy' or made_by = 'fix')
) strict;

CREATE TABLE deleted_schedules (
    namespace text not null,
    name text not null,
    workflow text not null,
    written text not null,
    fired_at integer,
    deleted_at integer not null,
    primary key (namespace, name)
) strict;

CREATE TABLE disarmed (
    id integer primary key check (id = 1),
    at integer not null,
    reason text not null
) strict;

CREATE TABLE events (
    id text primary key,
    namespace text not null,
    automation text not null,
    topic text not null,
    message_id text not null,
    payload text not null,
    status text not null,
    reserved_by text references runs (id),
    created_by text,
    attempt integer not null default 1,
    created_at integer not null,
    updated_at integer not null, revision integer not null default 0, correction text, alone integer not null default 0,
    constraint events_once unique (namespace, automation, topic, message_id),
    foreign key (namespace, automation, topic) references topics (namespace, automation, name),
    constraint events_status check (status = 'pending' or status = 'reserved'
        or status = 'consumed' or status = 'skipped'),
    constraint events_owner check ((status = 'reserved') = (reserved_by is not null))
) strict;

CREATE TABLE handler_runs (
    run_id text primary key references runs (id) on delete cascade,
    root_id text not null,
    namespace text not null,
    automation text not null,
    handler text not null,
    kind text not null,
    version integer not null,
    cause text not null,
    phase text not null,
    seen integer not null,
    prepared text,
    state_before text,
    state_after text,
    logs text,
    remark text,
    error_kind text,
    reserved_count integer not null default 0,
    published_count integer not null default 0,
    started_at integer not null,
    finished_at integer,
    constraint handler_runs_kind check (kind = 'producer' or kind = 'consumer'),
    constraint handler_runs_phase check (phase = 'executing' or phase = 'preparing'
        or phase = 'prepared' or phase = 'mutating' or phase = 'mutated' or phase = 'emitting'
        or phase = 'committed'),
    constraint handler_runs_way check (phase = 'committed'
        or (kind = 'producer') = (phase = 'executing'))
) strict;

CREATE TABLE handlers (
    namespace text not null,
    automation text not null,
    name text not null,
    kind text not null,
    position integer not null,
    digest text not null,
    spec text,
    written text,
    next_run_at integer,
    queued_at integer,
    last_run_at integer,
    wake_at integer,
    -- Dirty means marked > cleared: a mark that comes while the handler runs is not lost.
    marked integer not null default 0,
    cleared integer not null default 0,
    state text,
    state_run_id text,
    primary key (namespace, automation, name),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade,
    constraint handlers_kind check (kind = 'producer' or kind = 'consumer'),
    constraint handlers_spec check ((kind = 'producer') = (spec is not null)),
    constraint handlers_timed check (kind = 'producer' or (next_run_at is null and queued_at is null)),
    constraint handlers_woken check (kind = 'consumer' or wake_at is null),
    constraint handlers_marks check (cleared <= marked)
) strict;

CREATE TABLE inputs (
    id text primary key,
    namespace text not null,
    automation text not null,
    source text not null,
    type text not null,
    external_id text not null,
    title text not null,
    created_by text,
    created_at integer not null,
    skipped_at integer,
    constraint inputs_once unique (namespace, automation, source, type, external_id),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade
) strict;

CREATE TABLE key_holders (
    root_id text primary key references runs (id) on delete cascade,
    namespace text not null,
    queue text not null,
    limit_key text not null
) strict;

CREATE TABLE key_turns (
    namespace text not null,
    queue text not null,
    limit_key text not null,
    served_at integer not null,
    primary key (namespace, queue, limit_key)
) strict;

CREATE TABLE login_links (
    digest text primary key,
    namespace text not null,
    name text not null,
    role text not null,
    expires_at integer not null
) strict;

CREATE TABLE migrations (
    number integer primary key, name text not null, checksum text not null,
    applied_at integer not null
) strict;

CREATE TABLE mutations (
    id text primary key,
    root_id text not null,
    run_id text not null references runs (id) on delete cascade,
    namespace text not null,
    automation text not null,
    handler text not null,
    tool text not null,
    safety text not null,
    params text not null,
    title text,
    status text not null,
    approved_at integer,
    result text,
    error text,
    resolved_by text,
    reconcile_count integer not null default 0,
    created_at integer not null,
    updated_at integer not null,
    constraint mutations_status check (status = 'proposed' or status = 'in_flight'
        or status = 'applied' or status = 'failed' or status = 'needs_reconcile'
        or status = 'indeterminate' or status = 'skipped')
) strict;

CREATE TABLE notices (
    schedule_id text primary key references runs (id) on delete cascade,
    body text not null
) strict;

CREATE TABLE notification_rules (
    namespace text not null,
    name text not null,
    origin text not null,
    kinds text not null,
    body text not null,
    progress text,
    primary key (namespace, name)
) strict;

CREATE TABLE notifications (
    id text primary key,
    namespace text not null,
    kind text not null,
    source text not null,
    name text not null,
    schedule text,
    queue text not null,
    tags text,
    subject text not null,
    run_id text not null,
    details text not null,
    created_at integer not null,
    is_open integer not null,
    dispatched_at integer,
    sent_to text
, recipients text) strict;

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
    paused integer not null default 0, key_open_max integer, age_us integer, round_robin integer not null default 0,
    primary key (namespace, name)
) strict;

CREATE TABLE refused_deploys (
    namespace text not null,
    automation text not null,
    problems text not null,
    host text not null,
    refused_at integer not null,
    primary key (namespace, automation)
) strict;

CREATE TABLE reservations (
    run_id text not null references runs (id) on delete cascade,
    event_id text not null references events (id) on delete cascade,
    act text not null,
    at integer not null,
    primary key (run_id, event_id, act),
    constraint reservations_act check (act = 'reserved' or act = 'released' or act = 'consumed'
        or act = 'skipped' or act = 'transferred' or act = 'refused')
) strict;

CREATE TABLE run_expiries (
    run_id text primary key references runs (id) on delete cascade,
    namespace text not null,
    expires_at integer not null
) strict;

CREATE TABLE run_logs (
    run_id text not null,
    position integer not null,
    at integer not null,
    level text not null,
    logger text not null,
    message text not null,
    size integer not null,
    primary key (run_id, position)
) strict, without rowid;

CREATE TABLE runs (
    id text primary key,
    namespace text not null,
    kind text not null,
    name text not null,
    queue text not null,
    priority integer not null,
    status text not null,
    reason text,
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
    finished_at integer, segment_id text, pinned_version text, refused_versions text,
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

CREATE TABLE sessions (
    digest text primary key,
    namespace text not null,
    token_id text references api_tokens (id) on delete cascade,
    name text not null,
    role text not null,
    created_at integer not null,
    seen_at integer not null,
    expires_at integer not null
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
    finished_at integer, digest integer,
    primary key (root_id, key),
    constraint steps_finished check ((finished_at is not null) = (status <> 'waiting'))
) strict, without rowid;

CREATE TABLE topics (
    namespace text not null,
    automation text not null,
    name text not null,
    consumer text,
    external integer not null default 0,
    shape text,
    declared integer not null default 1,
    primary key (namespace, automation, name),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade
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
, code_id text, held_threads text, workflow_blocks text) strict;

CREATE INDEX answers_by_automation on answers (namespace, automation, id);

CREATE INDEX answers_by_change on answers (mutation_id) where mutation_id is not null;

CREATE INDEX answers_by_event on answers (event_id) where event_id is not null;

CREATE INDEX answers_by_input on answers (input_id) where input_id is not null;

CREATE INDEX answers_by_run on answers (run_id) where run_id is not null;

CREATE INDEX api_tokens_by_creation on api_tokens (namespace, created_at, id);

CREATE UNIQUE INDEX api_tokens_name on api_tokens (namespace, name) where revoked_at is null;

CREATE INDEX audit_by_age on audit (namespace, id);

CREATE INDEX causes_by_input on causes (input_id);

CREATE INDEX events_by_age on events (namespace, automation, id);

CREATE INDEX events_pending on events (namespace, automation, topic, id) where status = 'pending';

CREATE INDEX events_reserved on events (reserved_by) where reserved_by is not null;

CREATE INDEX handler_runs_by_automation on handler_runs (namespace, automation, run_id);

CREATE INDEX handler_runs_chain on handler_runs (root_id, run_id);

CREATE INDEX inputs_by_age on inputs (namespace, automation, id);

CREATE INDEX inputs_skipped on inputs (namespace, automation) where skipped_at is not null;

CREATE INDEX key_holders_by_key on key_holders (namespace, queue, limit_key);

CREATE INDEX key_turns_by_time on key_turns (namespace, queue, served_at);

CREATE INDEX login_links_by_end on login_links (namespace, expires_at);

CREATE INDEX mutations_by_automation on mutations (namespace, automation, id);

CREATE INDEX mutations_by_chain on mutations (root_id, id);

CREATE INDEX mutations_by_run on mutations (run_id);

CREATE UNIQUE INDEX mutations_one_per_chain on mutations (root_id) where status <> 'failed';

CREATE INDEX notifications_by_time on notifications (namespace, created_at);

CREATE INDEX notifications_open on notifications (subject) where is_open = 1;

CREATE INDEX notifications_pending on notifications (namespace, id)
    where dispatched_at is null or recipients is not null;

CREATE INDEX reservations_by_event on reservations (event_id);

CREATE INDEX run_expiries_due on run_expiries (namespace, expires_at);

CREATE INDEX runs_alone on runs (namespace, queue, priority desc, available_at, id)
    where status = 'pending' and recoveries >= 2;

CREATE UNIQUE INDEX runs_attempts on runs (root_id, retry_of) where retry_of is not null;

CREATE INDEX runs_by_name on runs (namespace, name, id)
    where kind <> 'workflow' and kind <> 'schedule';

CREATE INDEX runs_children on runs (parent_id) where parent_id is not null;

CREATE UNIQUE INDEX runs_external on runs (namespace, name, external_id) where external_id is not null;

CREATE INDEX runs_limit_keys on runs (namespace, queue, limit_key, status, priority desc, available_at, id)
    where limit_key is not null and finished_at is null;

CREATE UNIQUE INDEX runs_occurrence on runs (schedule_id, due_at,
    (case when retry_of is null and status <> 'skipped' then '' else id end))
    where schedule_id is not null;

CREATE INDEX runs_pinned on runs (namespace, pinned_version)
    where pinned_version is not null and finished_at is null;

CREATE INDEX runs_ready on runs (namespace, queue, priority desc, available_at, id)
    where status = 'pending';

CREATE INDEX runs_refused on runs (namespace) where refused_versions > '' and status = 'pending';

CREATE INDEX runs_resting on runs (namespace, status, kind, reason)
    where (status = 'waiting' or status = 'sleeping')
        and (status = 'waiting' or available_at is null);

CREATE INDEX runs_running on runs (namespace, queue, lease_until) where status = 'running';

CREATE INDEX runs_schedule_open on runs (schedule_id, status, reason, due_at)
    where schedule_id is not null and finished_at is null;

CREATE UNIQUE INDEX runs_serial on runs (namespace, serial_key)
    where serial_key is not null and finished_at is null;

CREATE UNIQUE INDEX runs_templates on runs (namespace, name) where kind = 'schedule';

CREATE INDEX runs_timer on runs (namespace, status, available_at)
    where available_at is not null
        and (status = 'sleeping' or status = 'scheduled' or status = 'paused');

CREATE INDEX runs_unsuccessful on runs (namespace, status, id)
    where finished_at is not null and status <> 'completed';

CREATE INDEX sessions_by_end on sessions (namespace, expires_at);

CREATE INDEX sessions_by_token on sessions (token_id) where token_id is not null;

CREATE INDEX signals_untaken on signals (root_id, name, taken_by, id);

CREATE INDEX workers_alive on workers (namespace, heartbeat_at) where status <> 'offline';

CREATE INDEX workers_by_start on workers (namespace, started_at, id);

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
select id, namespace, host, pid, queues, seats as slots, status, version,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at / 1000000.0, 'unixepoch') as heartbeat,
    strftime('%Y-%m-%dT%H:%M:%fZ', stopped_at / 1000000.0, 'unixepoch') as stopped
from workers;
