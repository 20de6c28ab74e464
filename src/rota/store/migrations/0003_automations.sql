-- Automations: what is deployed, what it waits for, its events, and the ledger of its effects.

-- `status` is the user's; `failures` and `fixes` are the system's. Why an automation stands still
-- is the status and reason of its one open run.
create table automations (
    namespace {key} not null,
    name {key} not null,
    status {text} not null,
    queue {key} not null,
    version {int} not null,
    digest {key} not null,
    failures {int} not null default 0,
    fixes {int} not null default 0,
    created_at {int} not null,
    updated_at {int} not null,
    primary key (namespace, name),
    constraint automations_status check (status = 'active' or status = 'paused' or status = 'archived')
) {strict};

-- Every version that was ever deployed or made by a fix.
create table definitions (
    namespace {key} not null,
    automation {key} not null,
    version {int} not null,
    digest {key} not null,
    made_by {text} not null,
    graph {text} not null,
    source {text},
    comment {text},
    created_at {int} not null,
    primary key (namespace, automation, version),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade,
    constraint definitions_made_by check (made_by = 'deploy' or made_by = 'fix')
) {strict};

create table handlers (
    namespace {key} not null,
    automation {key} not null,
    name {key} not null,
    kind {text} not null,
    position {int} not null,
    digest {key} not null,
    spec {text},
    written {text},
    next_run_at {int},
    queued_at {int},
    last_run_at {int},
    wake_at {int},
    -- Dirty means marked > cleared: a mark that comes while the handler runs is not lost.
    marked {int} not null default 0,
    cleared {int} not null default 0,
    state {text},
    state_run_id {key},
    primary key (namespace, automation, name),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade,
    constraint handlers_kind check (kind = 'producer' or kind = 'consumer'),
    constraint handlers_spec check ((kind = 'producer') = (spec is not null)),
    constraint handlers_timed check (kind = 'producer' or (next_run_at is null and queued_at is null)),
    constraint handlers_woken check (kind = 'consumer' or wake_at is null),
    constraint handlers_marks check (cleared <= marked)
) {strict};

-- A topic has one reader. `shape` is the type of its payloads as JSON Schema, where one is known. One that is no longer declared stays for the sake of its events.
create table topics (
    namespace {key} not null,
    automation {key} not null,
    name {key} not null,
    consumer {key},
    external {int} not null default 0,
    shape {text},
    declared {int} not null default 1,
    primary key (namespace, automation, name),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade
) {strict};

create table events (
    id {key} primary key,
    namespace {key} not null,
    automation {key} not null,
    topic {key} not null,
    message_id {key} not null,
    payload {text} not null,
    status {text} not null,
    reserved_by {key} references runs (id),
    created_by {key},
    attempt {int} not null default 1,
    created_at {int} not null,
    updated_at {int} not null,
    constraint events_once unique (namespace, automation, topic, message_id),
    foreign key (namespace, automation, topic) references topics (namespace, automation, name),
    constraint events_status check (status = 'pending' or status = 'reserved'
        or status = 'consumed' or status = 'skipped'),
    constraint events_owner check ((status = 'reserved') = (reserved_by is not null))
) {strict};
create index events_pending on events (namespace, automation, topic, id) where status = 'pending';
create index events_reserved on events (reserved_by) where reserved_by is not null;
create index events_by_age on events (namespace, automation, id);

-- What came in, for people.
create table inputs (
    id {key} primary key,
    namespace {key} not null,
    automation {key} not null,
    source {key} not null,
    type {key} not null,
    external_id {key} not null,
    title {text} not null,
    created_by {key},
    created_at {int} not null,
    skipped_at {int},
    constraint inputs_once unique (namespace, automation, source, type, external_id),
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade
) {strict};
create index inputs_by_age on inputs (namespace, automation, id);
create index inputs_skipped on inputs (namespace, automation) where skipped_at is not null;

-- Which inputs an event comes from, through any number of stages.
create table causes (
    event_id {key} not null references events (id) on delete cascade,
    input_id {key} not null references inputs (id) on delete cascade,
    primary key (event_id, input_id)
) {strict};
create index causes_by_input on causes (input_id);

-- One attempt of one handler; its status is the run's, its phase is here.
create table handler_runs (
    run_id {key} primary key references runs (id) on delete cascade,
    root_id {key} not null,
    namespace {key} not null,
    automation {key} not null,
    handler {key} not null,
    kind {text} not null,
    version {int} not null,
    cause {text} not null,
    phase {text} not null,
    seen {int} not null,
    prepared {text},
    state_before {text},
    state_after {text},
    logs {text},
    remark {text},
    error_kind {text},
    reserved_count {int} not null default 0,
    published_count {int} not null default 0,
    started_at {int} not null,
    finished_at {int},
    constraint handler_runs_kind check (kind = 'producer' or kind = 'consumer'),
    constraint handler_runs_phase check (phase = 'executing' or phase = 'preparing'
        or phase = 'prepared' or phase = 'mutating' or phase = 'mutated' or phase = 'emitting'
        or phase = 'committed'),
    constraint handler_runs_way check (phase = 'committed'
        or (kind = 'producer') = (phase = 'executing'))
) {strict};
create index handler_runs_chain on handler_runs (root_id, run_id);
create index handler_runs_by_automation on handler_runs (namespace, automation, run_id);

-- Run × event, append only: what each run did to each event.
create table reservations (
    run_id {key} not null references runs (id) on delete cascade,
    event_id {key} not null references events (id) on delete cascade,
    act {text} not null,
    at {int} not null,
    primary key (run_id, event_id, act),
    constraint reservations_act check (act = 'reserved' or act = 'released' or act = 'consumed'
        or act = 'skipped' or act = 'transferred' or act = 'refused')
) {strict};
create index reservations_by_event on reservations (event_id);

-- The ledger of side effects. The id is the idempotency key. What certainly did not happen stays
-- as history; of everything else a chain has at most one.
create table mutations (
    id {key} primary key,
    root_id {key} not null,
    run_id {key} not null references runs (id) on delete cascade,
    namespace {key} not null,
    automation {key} not null,
    handler {key} not null,
    tool {text} not null,
    safety {text} not null,
    params {text} not null,
    title {text},
    status {text} not null,
    approved_at {int},
    result {text},
    error {text},
    resolved_by {text},
    reconcile_count {int} not null default 0,
    created_at {int} not null,
    updated_at {int} not null,
    constraint mutations_status check (status = 'proposed' or status = 'in_flight'
        or status = 'applied' or status = 'failed' or status = 'needs_reconcile'
        or status = 'indeterminate' or status = 'skipped')
) {strict};
create unique index mutations_one_per_chain on mutations (root_id) where status <> 'failed';
create index mutations_by_chain on mutations (root_id, id);
create index mutations_by_run on mutations (run_id);
create index mutations_by_automation on mutations (namespace, automation, id);
