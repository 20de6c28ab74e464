-- Readable views for people: times as ISO 8601 text in UTC.
drop view if exists readable_runs;
create view readable_runs as
select id, namespace, kind, name, queue, priority,
    status || coalesce(':' || reason, '') as status,
    attempt, recoveries, trigger, external_id, retry_of, root_id, parent_id, lease_owner,
    strftime('%Y-%m-%dT%H:%M:%fZ', available_at / 1000000.0, 'unixepoch') as available,
    strftime('%Y-%m-%dT%H:%M:%fZ', due_at / 1000000.0, 'unixepoch') as due,
    strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') as created,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') as finished,
    strftime('%Y-%m-%dT%H:%M:%fZ', lease_until / 1000000.0, 'unixepoch') as lease,
    (finished_at - started_at) / 1000000.0 as took_s,
    input, output, error
from runs;
drop view if exists readable_steps;
create view readable_steps as
select root_id, position, key, kind, status, attempt, output, error, child_id,
    strftime('%Y-%m-%dT%H:%M:%fZ', wake_at / 1000000.0, 'unixepoch') as wakes,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch') as finished
from steps;
drop view if exists readable_workers;
create view readable_workers as
select id, namespace, host, pid, queues, seats as slots, status, version,
    strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') as started,
    strftime('%Y-%m-%dT%H:%M:%fZ', heartbeat_at / 1000000.0, 'unixepoch') as heartbeat,
    strftime('%Y-%m-%dT%H:%M:%fZ', stopped_at / 1000000.0, 'unixepoch') as stopped
from workers;
