-- Readable views for people: times as timestamptz.
drop view if exists readable_runs;
create view readable_runs as
select id, namespace, kind, name, queue, priority,
    status || coalesce(':' || reason, '') as status,
    attempt, recoveries, trigger, external_id, retry_of, root_id, parent_id, lease_owner,
    to_timestamp(available_at / 1000000.0) as available,
    to_timestamp(due_at / 1000000.0) as due,
    to_timestamp(created_at / 1000000.0) as created,
    to_timestamp(started_at / 1000000.0) as started,
    to_timestamp(finished_at / 1000000.0) as finished,
    to_timestamp(lease_until / 1000000.0) as lease,
    (finished_at - started_at) / 1000000.0 as took_s,
    input, output, error
from runs;
drop view if exists readable_steps;
create view readable_steps as
select root_id, position, key, kind, status, attempt, output, error, child_id,
    to_timestamp(wake_at / 1000000.0) as wakes,
    to_timestamp(started_at / 1000000.0) as started,
    to_timestamp(finished_at / 1000000.0) as finished
from steps;
drop view if exists readable_workers;
create view readable_workers as
select id, namespace, host, pid, queues, seats as slots, status, version,
    to_timestamp(started_at / 1000000.0) as started,
    to_timestamp(heartbeat_at / 1000000.0) as heartbeat,
    to_timestamp(stopped_at / 1000000.0) as stopped
from workers;
