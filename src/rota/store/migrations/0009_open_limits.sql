-- Limits that hold until a chain ends, and fair queues. New columns are null for existing queues;
-- no large table is rewritten.
alter table queues add column key_open_max {int};
alter table queues add column age_us {int};
alter table queues add column round_robin {int} not null default 0;

-- Which chains hold a place of their key, from their first claim on. Written and cleared by claims
-- under the queue's lock; a chain that is over holds nothing, whether or not its row is still here.
create table key_holders (
    root_id {key} primary key references runs (id) on delete cascade,
    namespace {key} not null,
    queue {key} not null,
    limit_key {key} not null
) {strict};
create index key_holders_by_key on key_holders (namespace, queue, limit_key);

-- When a key of a round-robin queue was last served.
create table key_turns (
    namespace {key} not null,
    queue {key} not null,
    limit_key {key} not null,
    served_at {int} not null,
    primary key (namespace, queue, limit_key)
) {strict};
create index key_turns_by_time on key_turns (namespace, queue, served_at);
