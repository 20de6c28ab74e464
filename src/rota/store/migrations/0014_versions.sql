-- The code of automations that workers have. Workers with the same code share a set; claims name it.
create table code_sets (
    id {key} primary key,
    namespace {key} not null,
    seen_at {int} not null
) {strict};
create table code_digests (
    code_id {key} not null references code_sets (id) on delete cascade,
    name {key} not null,
    digest {key} not null,
    primary key (code_id, name)
) {clustered};
alter table workers add column code_id {key};

-- What a rollback needs to put a version in force again, and the version that a rollback restored.
-- Versions from before this migration have no parts: they are put in force by their code alone.
alter table definitions add column parts {text};
alter table definitions add column restores {int};

-- The last deploy of each automation, while it is one that was refused.
create table refused_deploys (
    namespace {key} not null,
    automation {key} not null,
    problems {text} not null,
    host {text} not null,
    refused_at {int} not null,
    primary key (namespace, automation)
) {strict};
