-- Schedules that were deleted, so that `rota why` can still answer for their names. Their runs stay,
-- but know nothing of the schedule any more. Pruned like finished runs.
create table deleted_schedules (
    namespace {key} not null,
    name {key} not null,
    workflow {text} not null,
    written {text} not null,
    fired_at {int},
    deleted_at {int} not null,
    primary key (namespace, name)
) {strict};

-- Runs of schedules that end unless they begin in time. A table of its own: few schedules ask for
-- it, and the statements that start and claim runs stay as they are.
create table run_expiries (
    run_id {key} primary key references runs (id) on delete cascade,
    namespace {key} not null,
    expires_at {int} not null
) {strict};
create index run_expiries_due on run_expiries (namespace, expires_at);
