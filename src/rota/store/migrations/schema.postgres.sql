-- The whole schema on PostgreSQL, after all migrations. Made by `python -m scripts.schema`.

create table archive (
    month text collate "C" not null,
    root_id text collate "C" not null,
    namespace text collate "C" not null,
    finished_at bigint not null,
    body text not null,
    constraint archive_pkey PRIMARY KEY (root_id, month)
);

create table ai_limits (
    namespace text collate "C" not null,
    name text collate "C" not null,
    state text not null,
    constraint ai_limits_pkey PRIMARY KEY (namespace, name)
);

create table answers (
    id text collate "C" not null,
    namespace text collate "C" not null,
    automation text collate "C" not null,
    act text not null,
    mutation_id text collate "C",
    run_id text collate "C",
    event_id text collate "C",
    input_id text collate "C",
    person text not null,
    note text,
    at bigint not null,
    constraint answers_event_id_fkey FOREIGN KEY (event_id) REFERENCES events(id) ON DELETE CASCADE,
    constraint answers_input_id_fkey FOREIGN KEY (input_id) REFERENCES inputs(id) ON DELETE CASCADE,
    constraint answers_namespace_automation_fkey FOREIGN KEY (namespace, automation) REFERENCES automations(namespace, name) ON DELETE CASCADE,
    constraint answers_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint answers_pkey PRIMARY KEY (id)
);
CREATE INDEX answers_by_automation ON answers USING btree (namespace, automation, id);
CREATE INDEX answers_by_change ON answers USING btree (mutation_id) WHERE (mutation_id IS NOT NULL);
CREATE INDEX answers_by_event ON answers USING btree (event_id) WHERE (event_id IS NOT NULL);
CREATE INDEX answers_by_input ON answers USING btree (input_id) WHERE (input_id IS NOT NULL);
CREATE INDEX answers_by_run ON answers USING btree (run_id) WHERE (run_id IS NOT NULL);

create table api_tokens (
    id text collate "C" not null,
    namespace text collate "C" not null,
    name text collate "C" not null,
    digest text not null,
    role text not null,
    created_at bigint not null,
    expires_at bigint,
    last_used_at bigint,
    revoked_at bigint,
    constraint api_tokens_role CHECK (((role = 'read'::text) OR (role = 'operate'::text) OR (role = 'admin'::text))),
    constraint api_tokens_pkey PRIMARY KEY (id)
);
CREATE INDEX api_tokens_by_creation ON api_tokens USING btree (namespace, created_at, id);
CREATE UNIQUE INDEX api_tokens_name ON api_tokens USING btree (namespace, name) WHERE (revoked_at IS NULL);

create table audit (
    id text collate "C" not null,
    namespace text collate "C" not null,
    at bigint not null,
    who text not null,
    verb text not null,
    target text not null,
    request_id text not null,
    detail text,
    constraint audit_pkey PRIMARY KEY (id)
);
CREATE INDEX audit_by_age ON audit USING btree (namespace, id);

create table automations (
    namespace text collate "C" not null,
    name text collate "C" not null,
    status text not null,
    queue text collate "C" not null,
    version bigint not null,
    digest text collate "C" not null,
    failures bigint not null default 0,
    fixes bigint not null default 0,
    created_at bigint not null,
    updated_at bigint not null,
    waits_for text,
    waits_since bigint,
    waits_count bigint not null default 0,
    constraint automations_status CHECK (((status = 'active'::text) OR (status = 'paused'::text) OR (status = 'archived'::text))),
    constraint automations_pkey PRIMARY KEY (namespace, name)
);

create table causes (
    event_id text collate "C" not null,
    input_id text collate "C" not null,
    constraint causes_event_id_fkey FOREIGN KEY (event_id) REFERENCES events(id) ON DELETE CASCADE,
    constraint causes_input_id_fkey FOREIGN KEY (input_id) REFERENCES inputs(id) ON DELETE CASCADE,
    constraint causes_pkey PRIMARY KEY (event_id, input_id)
);
CREATE INDEX causes_by_input ON causes USING btree (input_id);

create table code_digests (
    code_id text collate "C" not null,
    name text collate "C" not null,
    digest text collate "C" not null,
    constraint code_digests_code_id_fkey FOREIGN KEY (code_id) REFERENCES code_sets(id) ON DELETE CASCADE,
    constraint code_digests_pkey PRIMARY KEY (code_id, name)
);

create table code_sets (
    id text collate "C" not null,
    namespace text collate "C" not null,
    seen_at bigint not null,
    constraint code_sets_pkey PRIMARY KEY (id)
);

create table definitions (
    namespace text collate "C" not null,
    automation text collate "C" not null,
    version bigint not null,
    digest text collate "C" not null,
    made_by text not null,
    graph text not null,
    source text,
    comment text,
    created_at bigint not null,
    parts text,
    restores bigint,
    constraint definitions_made_by CHECK (((made_by = 'deploy'::text) OR (made_by = 'fix'::text))),
    constraint definitions_namespace_automation_fkey FOREIGN KEY (namespace, automation) REFERENCES automations(namespace, name) ON DELETE CASCADE,
    constraint definitions_pkey PRIMARY KEY (namespace, automation, version)
);

create table deleted_schedules (
    namespace text collate "C" not null,
    name text collate "C" not null,
    workflow text not null,
    written text not null,
    fired_at bigint,
    deleted_at bigint not null,
    constraint deleted_schedules_pkey PRIMARY KEY (namespace, name)
);

create table disarmed (
    id bigint not null,
    at bigint not null,
    reason text not null,
    constraint disarmed_id_check CHECK ((id = 1)),
    constraint disarmed_pkey PRIMARY KEY (id)
);

create table events (
    id text collate "C" not null,
    namespace text collate "C" not null,
    automation text collate "C" not null,
    topic text collate "C" not null,
    message_id text collate "C" not null,
    payload text not null,
    status text not null,
    reserved_by text collate "C",
    created_by text collate "C",
    attempt bigint not null default 1,
    created_at bigint not null,
    updated_at bigint not null,
    revision bigint not null default 0,
    correction text,
    alone bigint not null default 0,
    constraint events_owner CHECK (((status = 'reserved'::text) = (reserved_by IS NOT NULL))),
    constraint events_status CHECK (((status = 'pending'::text) OR (status = 'reserved'::text) OR (status = 'consumed'::text) OR (status = 'skipped'::text))),
    constraint events_namespace_automation_topic_fkey FOREIGN KEY (namespace, automation, topic) REFERENCES topics(namespace, automation, name),
    constraint events_reserved_by_fkey FOREIGN KEY (reserved_by) REFERENCES runs(id),
    constraint events_pkey PRIMARY KEY (id),
    constraint events_once UNIQUE (namespace, automation, topic, message_id)
);
CREATE INDEX events_by_age ON events USING btree (namespace, automation, id);
CREATE INDEX events_pending ON events USING btree (namespace, automation, topic, id) WHERE (status = 'pending'::text);
CREATE INDEX events_reserved ON events USING btree (reserved_by) WHERE (reserved_by IS NOT NULL);

create table handler_runs (
    run_id text collate "C" not null,
    root_id text collate "C" not null,
    namespace text collate "C" not null,
    automation text collate "C" not null,
    handler text collate "C" not null,
    kind text not null,
    version bigint not null,
    cause text not null,
    phase text not null,
    seen bigint not null,
    prepared text,
    state_before text,
    state_after text,
    logs text,
    remark text,
    error_kind text,
    reserved_count bigint not null default 0,
    published_count bigint not null default 0,
    started_at bigint not null,
    finished_at bigint,
    constraint handler_runs_kind CHECK (((kind = 'producer'::text) OR (kind = 'consumer'::text))),
    constraint handler_runs_phase CHECK (((phase = 'executing'::text) OR (phase = 'preparing'::text) OR (phase = 'prepared'::text) OR (phase = 'mutating'::text) OR (phase = 'mutated'::text) OR (phase = 'emitting'::text) OR (phase = 'committed'::text))),
    constraint handler_runs_way CHECK (((phase = 'committed'::text) OR ((kind = 'producer'::text) = (phase = 'executing'::text)))),
    constraint handler_runs_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint handler_runs_pkey PRIMARY KEY (run_id)
);
CREATE INDEX handler_runs_by_automation ON handler_runs USING btree (namespace, automation, run_id);
CREATE INDEX handler_runs_chain ON handler_runs USING btree (root_id, run_id);

create table handlers (
    namespace text collate "C" not null,
    automation text collate "C" not null,
    name text collate "C" not null,
    kind text not null,
    position bigint not null,
    digest text collate "C" not null,
    spec text,
    written text,
    next_run_at bigint,
    queued_at bigint,
    last_run_at bigint,
    wake_at bigint,
    marked bigint not null default 0,
    cleared bigint not null default 0,
    state text,
    state_run_id text collate "C",
    constraint handlers_kind CHECK (((kind = 'producer'::text) OR (kind = 'consumer'::text))),
    constraint handlers_marks CHECK ((cleared <= marked)),
    constraint handlers_spec CHECK (((kind = 'producer'::text) = (spec IS NOT NULL))),
    constraint handlers_timed CHECK (((kind = 'producer'::text) OR ((next_run_at IS NULL) AND (queued_at IS NULL)))),
    constraint handlers_woken CHECK (((kind = 'consumer'::text) OR (wake_at IS NULL))),
    constraint handlers_namespace_automation_fkey FOREIGN KEY (namespace, automation) REFERENCES automations(namespace, name) ON DELETE CASCADE,
    constraint handlers_pkey PRIMARY KEY (namespace, automation, name)
);

create table inputs (
    id text collate "C" not null,
    namespace text collate "C" not null,
    automation text collate "C" not null,
    source text collate "C" not null,
    type text collate "C" not null,
    external_id text collate "C" not null,
    title text not null,
    created_by text collate "C",
    created_at bigint not null,
    skipped_at bigint,
    constraint inputs_namespace_automation_fkey FOREIGN KEY (namespace, automation) REFERENCES automations(namespace, name) ON DELETE CASCADE,
    constraint inputs_pkey PRIMARY KEY (id),
    constraint inputs_once UNIQUE (namespace, automation, source, type, external_id)
);
CREATE INDEX inputs_by_age ON inputs USING btree (namespace, automation, id);
CREATE INDEX inputs_skipped ON inputs USING btree (namespace, automation) WHERE (skipped_at IS NOT NULL);

create table key_holders (
    root_id text collate "C" not null,
    namespace text collate "C" not null,
    queue text collate "C" not null,
    limit_key text collate "C" not null,
    constraint key_holders_root_id_fkey FOREIGN KEY (root_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint key_holders_pkey PRIMARY KEY (root_id)
);
CREATE INDEX key_holders_by_key ON key_holders USING btree (namespace, queue, limit_key);

create table key_turns (
    namespace text collate "C" not null,
    queue text collate "C" not null,
    limit_key text collate "C" not null,
    served_at bigint not null,
    constraint key_turns_pkey PRIMARY KEY (namespace, queue, limit_key)
);
CREATE INDEX key_turns_by_time ON key_turns USING btree (namespace, queue, served_at);

create table login_links (
    digest text collate "C" not null,
    namespace text collate "C" not null,
    name text not null,
    role text not null,
    expires_at bigint not null,
    constraint login_links_pkey PRIMARY KEY (digest)
);
CREATE INDEX login_links_by_end ON login_links USING btree (namespace, expires_at);

create table migrations (
    number bigint not null,
    name text not null,
    checksum text not null,
    applied_at bigint not null,
    constraint migrations_pkey PRIMARY KEY (number)
);

create table mutations (
    id text collate "C" not null,
    root_id text collate "C" not null,
    run_id text collate "C" not null,
    namespace text collate "C" not null,
    automation text collate "C" not null,
    handler text collate "C" not null,
    tool text not null,
    safety text not null,
    params text not null,
    title text,
    status text not null,
    approved_at bigint,
    result text,
    error text,
    resolved_by text,
    reconcile_count bigint not null default 0,
    created_at bigint not null,
    updated_at bigint not null,
    constraint mutations_status CHECK (((status = 'proposed'::text) OR (status = 'in_flight'::text) OR (status = 'applied'::text) OR (status = 'failed'::text) OR (status = 'needs_reconcile'::text) OR (status = 'indeterminate'::text) OR (status = 'skipped'::text))),
    constraint mutations_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint mutations_pkey PRIMARY KEY (id)
);
CREATE INDEX mutations_by_automation ON mutations USING btree (namespace, automation, id);
CREATE INDEX mutations_by_chain ON mutations USING btree (root_id, id);
CREATE INDEX mutations_by_run ON mutations USING btree (run_id);
CREATE UNIQUE INDEX mutations_one_per_chain ON mutations USING btree (root_id) WHERE (status <> 'failed'::text);

create table notices (
    schedule_id text collate "C" not null,
    body text not null,
    constraint notices_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint notices_pkey PRIMARY KEY (schedule_id)
);

create table notification_rules (
    namespace text collate "C" not null,
    name text collate "C" not null,
    origin text collate "C" not null,
    kinds text not null,
    body text not null,
    progress text,
    constraint notification_rules_pkey PRIMARY KEY (namespace, name)
);

create table notifications (
    id text collate "C" not null,
    namespace text collate "C" not null,
    kind text not null,
    source text not null,
    name text not null,
    schedule text,
    queue text not null,
    tags text,
    subject text collate "C" not null,
    run_id text collate "C" not null,
    details text not null,
    created_at bigint not null,
    is_open bigint not null,
    dispatched_at bigint,
    sent_to text,
    recipients text,
    constraint notifications_pkey PRIMARY KEY (id)
);
CREATE INDEX notifications_by_time ON notifications USING btree (namespace, created_at);
CREATE INDEX notifications_open ON notifications USING btree (subject) WHERE (is_open = 1);
CREATE INDEX notifications_pending ON notifications USING btree (namespace, id) WHERE ((dispatched_at IS NULL) OR (recipients IS NOT NULL));

create table payloads (
    run_id text collate "C" not null,
    part text not null,
    body text not null,
    constraint payloads_part_check CHECK ((part = ANY (ARRAY['input'::text, 'output'::text, 'error'::text]))),
    constraint payloads_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint payloads_pkey PRIMARY KEY (run_id, part)
);

create table queues (
    namespace text collate "C" not null,
    name text collate "C" not null,
    running_max bigint,
    key_running_max bigint,
    rate_count bigint,
    rate_per_us bigint,
    ready_at bigint not null default 0,
    paused bigint not null default 0,
    key_open_max bigint,
    age_us bigint,
    round_robin bigint not null default 0,
    constraint queues_pkey PRIMARY KEY (namespace, name)
);

create table refused_deploys (
    namespace text collate "C" not null,
    automation text collate "C" not null,
    problems text not null,
    host text not null,
    refused_at bigint not null,
    constraint refused_deploys_pkey PRIMARY KEY (namespace, automation)
);

create table reservations (
    run_id text collate "C" not null,
    event_id text collate "C" not null,
    act text not null,
    at bigint not null,
    constraint reservations_act CHECK (((act = 'reserved'::text) OR (act = 'released'::text) OR (act = 'consumed'::text) OR (act = 'skipped'::text) OR (act = 'transferred'::text) OR (act = 'refused'::text))),
    constraint reservations_event_id_fkey FOREIGN KEY (event_id) REFERENCES events(id) ON DELETE CASCADE,
    constraint reservations_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint reservations_pkey PRIMARY KEY (run_id, event_id, act)
);
CREATE INDEX reservations_by_event ON reservations USING btree (event_id);

create table run_expiries (
    run_id text collate "C" not null,
    namespace text collate "C" not null,
    expires_at bigint not null,
    constraint run_expiries_run_id_fkey FOREIGN KEY (run_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint run_expiries_pkey PRIMARY KEY (run_id)
);
CREATE INDEX run_expiries_due ON run_expiries USING btree (namespace, expires_at);

create table run_logs (
    run_id text collate "C" not null,
    position bigint not null,
    at bigint not null,
    level text not null,
    logger text not null,
    message text not null,
    size bigint not null,
    constraint run_logs_pkey PRIMARY KEY (run_id, "position")
);

create table runs (
    id text collate "C" not null,
    namespace text collate "C" not null,
    kind text not null,
    name text collate "C" not null,
    queue text collate "C" not null,
    priority bigint not null,
    status text not null,
    reason text,
    available_at bigint,
    due_at bigint,
    schedule_id text collate "C",
    cron_expr text,
    spec text,
    retry_of text collate "C",
    root_id text collate "C" not null,
    parent_id text collate "C",
    attempt bigint not null,
    recoveries bigint not null,
    trigger text not null,
    external_id text collate "C",
    serial_key text collate "C",
    limit_key text collate "C",
    lease_owner text collate "C",
    lease_until bigint,
    claim_count bigint not null default 0,
    wake_requested bigint not null default 0,
    version text,
    tags text,
    options text,
    input text,
    output text,
    error text,
    created_at bigint not null,
    started_at bigint,
    finished_at bigint,
    segment_id text collate "C",
    pinned_version text collate "C",
    refused_versions text,
    constraint runs_sound CHECK (run_is_sound(status, available_at, lease_owner, lease_until, finished_at)),
    constraint runs_schedule_id_fkey FOREIGN KEY (schedule_id) REFERENCES runs(id) ON DELETE SET NULL,
    constraint runs_pkey PRIMARY KEY (id)
);
CREATE INDEX runs_alone ON runs USING btree (namespace, queue, priority DESC, available_at, id) WHERE ((status = 'pending'::text) AND (recoveries >= 2));
CREATE INDEX runs_by_name ON runs USING btree (namespace, name, id) WHERE ((kind <> 'workflow'::text) AND (kind <> 'schedule'::text));
CREATE INDEX runs_children ON runs USING btree (parent_id) WHERE (parent_id IS NOT NULL);
CREATE INDEX runs_limit_keys ON runs USING btree (namespace, queue, limit_key, status, priority DESC, available_at, id) WHERE ((limit_key IS NOT NULL) AND (finished_at IS NULL));
CREATE INDEX runs_pinned ON runs USING btree (namespace, pinned_version) WHERE ((pinned_version IS NOT NULL) AND (finished_at IS NULL));
CREATE INDEX runs_ready ON runs USING btree (namespace, queue, priority DESC, available_at, id) WITH (deduplicate_items=off) WHERE (status = 'pending'::text);
CREATE INDEX runs_refused ON runs USING btree (namespace) WHERE ((refused_versions > ''::text) AND (status = 'pending'::text));
CREATE INDEX runs_resting ON runs USING btree (namespace, status, kind, reason) WHERE (((status = 'waiting'::text) OR (status = 'sleeping'::text)) AND ((status = 'waiting'::text) OR (available_at IS NULL)));
CREATE INDEX runs_running ON runs USING btree (namespace, queue, lease_until) WHERE (status = 'running'::text);
CREATE INDEX runs_schedule_open ON runs USING btree (schedule_id, status, reason, due_at) WHERE ((schedule_id IS NOT NULL) AND (finished_at IS NULL));
CREATE INDEX runs_timer ON runs USING btree (namespace, status, available_at) WHERE ((available_at IS NOT NULL) AND ((status = 'sleeping'::text) OR (status = 'scheduled'::text) OR (status = 'paused'::text)));
CREATE INDEX runs_unsuccessful ON runs USING btree (namespace, status, id) WHERE ((finished_at IS NOT NULL) AND (status <> 'completed'::text));
CREATE UNIQUE INDEX runs_attempts ON runs USING btree (root_id, retry_of) WHERE (retry_of IS NOT NULL);
CREATE UNIQUE INDEX runs_external ON runs USING btree (namespace, name, external_id) WHERE (external_id IS NOT NULL);
CREATE UNIQUE INDEX runs_occurrence ON runs USING btree (schedule_id, due_at, (
CASE
    WHEN ((retry_of IS NULL) AND (status <> 'skipped'::text)) THEN ''::text
    ELSE id
END)) WHERE (schedule_id IS NOT NULL);
CREATE UNIQUE INDEX runs_serial ON runs USING btree (namespace, serial_key) WHERE ((serial_key IS NOT NULL) AND (finished_at IS NULL));
CREATE UNIQUE INDEX runs_templates ON runs USING btree (namespace, name) WHERE (kind = 'schedule'::text);

create table sessions (
    digest text collate "C" not null,
    namespace text collate "C" not null,
    token_id text collate "C",
    name text not null,
    role text not null,
    created_at bigint not null,
    seen_at bigint not null,
    expires_at bigint not null,
    constraint sessions_token_id_fkey FOREIGN KEY (token_id) REFERENCES api_tokens(id) ON DELETE CASCADE,
    constraint sessions_pkey PRIMARY KEY (digest)
);
CREATE INDEX sessions_by_end ON sessions USING btree (namespace, expires_at);
CREATE INDEX sessions_by_token ON sessions USING btree (token_id) WHERE (token_id IS NOT NULL);

create table signals (
    id text collate "C" not null,
    root_id text collate "C" not null,
    name text collate "C" not null,
    body text,
    created_at bigint not null,
    taken_by text,
    constraint signals_root_id_fkey FOREIGN KEY (root_id) REFERENCES runs(id) ON DELETE CASCADE,
    constraint signals_pkey PRIMARY KEY (id)
);
CREATE INDEX signals_untaken ON signals USING btree (root_id, name, taken_by, id);

create table steps (
    root_id text collate "C" not null,
    key text collate "C" not null,
    position bigint not null,
    kind text not null,
    status text not null,
    attempt bigint not null,
    run_attempt bigint not null,
    output text,
    error text,
    wake_at bigint,
    child_id text collate "C",
    started_at bigint not null,
    finished_at bigint,
    digest bigint,
    constraint steps_finished CHECK (((finished_at IS NOT NULL) = (status <> 'waiting'::text))),
    constraint steps_status_check CHECK ((status = ANY (ARRAY['completed'::text, 'failed'::text, 'waiting'::text]))),
    constraint steps_pkey PRIMARY KEY (root_id, key)
);

create table topics (
    namespace text collate "C" not null,
    automation text collate "C" not null,
    name text collate "C" not null,
    consumer text collate "C",
    external bigint not null default 0,
    shape text,
    declared bigint not null default 1,
    constraint topics_namespace_automation_fkey FOREIGN KEY (namespace, automation) REFERENCES automations(namespace, name) ON DELETE CASCADE,
    constraint topics_pkey PRIMARY KEY (namespace, automation, name)
);

create table workers (
    id text collate "C" not null,
    namespace text collate "C" not null,
    host text not null,
    pid bigint not null,
    pid_started text not null,
    queues text not null,
    names text not null,
    seats bigint not null,
    status text not null,
    version text not null,
    started_at bigint not null,
    heartbeat_at bigint not null,
    stopped_at bigint,
    code_id text collate "C",
    held_threads text,
    workflow_blocks text,
    constraint workers_status_check CHECK ((status = ANY (ARRAY['online'::text, 'draining'::text, 'offline'::text]))),
    constraint workers_pkey PRIMARY KEY (id)
);
CREATE INDEX workers_alive ON workers USING btree (namespace, heartbeat_at) WHERE (status <> 'offline'::text);
CREATE INDEX workers_by_start ON workers USING btree (namespace, started_at, id);

-- view readable_runs
-- id text collate "C"
-- namespace text collate "C"
-- kind text
-- name text collate "C"
-- queue text collate "C"
-- priority bigint
-- status text
-- attempt bigint
-- recoveries bigint
-- trigger text
-- external_id text collate "C"
-- retry_of text collate "C"
-- root_id text collate "C"
-- parent_id text collate "C"
-- lease_owner text collate "C"
-- available timestamp with time zone
-- due timestamp with time zone
-- created timestamp with time zone
-- started timestamp with time zone
-- finished timestamp with time zone
-- lease timestamp with time zone
-- took_s numeric
-- input text
-- output text
-- error text

-- view readable_steps
-- root_id text collate "C"
-- position bigint
-- key text collate "C"
-- kind text
-- status text
-- attempt bigint
-- output text
-- error text
-- child_id text collate "C"
-- wakes timestamp with time zone
-- started timestamp with time zone
-- finished timestamp with time zone

-- view readable_workers
-- id text collate "C"
-- namespace text collate "C"
-- host text
-- pid bigint
-- queues text
-- slots bigint
-- status text
-- version text
-- started timestamp with time zone
-- heartbeat timestamp with time zone
-- stopped timestamp with time zone

create function run_is_sound(status text, available_at bigint, lease_owner text, lease_until bigint, finished_at bigint) returns boolean language plpgsql as $$
begin
    return case
        when status = 'running'
            then lease_owner is not null and lease_until is not null and finished_at is null
        when lease_owner is not null or lease_until is not null then false
        when status in ('pending', 'scheduled')
            then available_at is not null and finished_at is null
        when status in ('sleeping', 'waiting', 'paused') then finished_at is null
        when status in ('completed', 'failed', 'cancelled', 'crashed', 'skipped')
            then finished_at is not null
        else false
    end;
end $$;
