-- Pipelines: limits of AI providers that all workers share, and who is told about executions.

-- One row for each provider: its buckets, the wait it asked for and its breaker, as JSON.
create table ai_limits (
    namespace {key} not null,
    name {key} not null,
    state {text} not null,
    primary key (namespace, name)
) {strict};

-- Whom a schedule tells about its executions, and what the pipeline is called, as JSON.
create table notices (
    schedule_id {key} primary key references runs (id) on delete cascade,
    body {text} not null
) {strict};
