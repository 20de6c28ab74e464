-- What an automation waits for when a counterpart does not answer, and what people answered. New
-- columns are null for existing automations; no large table is rewritten.
alter table automations add column waits_for {text};
alter table automations add column waits_since {int};
alter table automations add column waits_count {int} not null default 0;

-- Who answered, when and why. An answer goes with the run, event or input that it is about.
create table answers (
    id {key} primary key,
    namespace {key} not null,
    automation {key} not null,
    act {text} not null,
    mutation_id {key},
    run_id {key} references runs (id) on delete cascade,
    event_id {key} references events (id) on delete cascade,
    input_id {key} references inputs (id) on delete cascade,
    person {text} not null,
    note {text},
    at {int} not null,
    foreign key (namespace, automation) references automations (namespace, name) on delete cascade
) {strict};
create index answers_by_automation on answers (namespace, automation, id);
create index answers_by_change on answers (mutation_id) where mutation_id is not null;
create index answers_by_run on answers (run_id) where run_id is not null;
create index answers_by_event on answers (event_id) where event_id is not null;
create index answers_by_input on answers (input_id) where input_id is not null;
