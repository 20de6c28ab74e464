-- One row while the database is disarmed: workers claim, fire and send nothing.
create table disarmed (
    id {int} primary key check (id = 1),
    at {int} not null,
    reason {text} not null
) {strict};
