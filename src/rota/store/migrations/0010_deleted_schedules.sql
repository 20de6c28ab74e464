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
