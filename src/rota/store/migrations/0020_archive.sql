-- Finished chains that were moved out of the tables in use. On PostgreSQL each month is a partition,
-- so that a month can be dumped or dropped at once.
create table archive (
    month {key} not null,
    root_id {key} not null,
    namespace {key} not null,
    finished_at {int} not null,
    body {text} not null,
    primary key (root_id, month)
) {by_month};
