-- Who may use the API and the dashboard, what they did, and the log lines of runs. New tables only:
-- no large table is rewritten.

-- A token is known by its id; of its secret only the SHA-256 is stored.
create table api_tokens (
    id {key} primary key,
    namespace {key} not null,
    name {key} not null,
    digest {text} not null,
    role {text} not null,
    created_at {int} not null,
    expires_at {int},
    last_used_at {int},
    revoked_at {int},
    constraint api_tokens_role check (role = 'read' or role = 'operate' or role = 'admin')
) {strict};
-- A name is free again after its token was revoked.
create unique index api_tokens_name on api_tokens (namespace, name) where revoked_at is null;

-- Logins of browsers. One that began with a token ends with it.
create table sessions (
    digest {key} primary key,
    namespace {key} not null,
    token_id {key} references api_tokens (id) on delete cascade,
    name {text} not null,
    role {text} not null,
    created_at {int} not null,
    seen_at {int} not null,
    expires_at {int} not null
) {strict};
create index sessions_by_token on sessions (token_id) where token_id is not null;
create index sessions_by_end on sessions (namespace, expires_at);

-- Links that log a browser in once.
create table login_links (
    digest {key} primary key,
    namespace {key} not null,
    name {text} not null,
    role {text} not null,
    expires_at {int} not null
) {strict};
create index login_links_by_end on login_links (namespace, expires_at);

-- Who did what through a surface. `detail` is JSON.
create table audit (
    id {key} primary key,
    namespace {key} not null,
    at {int} not null,
    who {text} not null,
    verb {text} not null,
    target {text} not null,
    request_id {text} not null,
    detail {text}
) {strict};
create index audit_by_age on audit (namespace, id);

-- Log lines of an attempt. `size` is the bytes of its lines up to this one, so that one read of the
-- last line shows whether another fits. No foreign key: pruning deletes them with their runs.
create table run_logs (
    run_id {key} not null,
    position {int} not null,
    at {int} not null,
    level {text} not null,
    logger {text} not null,
    message {text} not null,
    size {int} not null,
    primary key (run_id, position)
) {clustered};
