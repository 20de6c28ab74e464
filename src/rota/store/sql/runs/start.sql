-- name: start_runs
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, due_at,
    schedule_id, retry_of, root_id, parent_id, attempt, recoveries, trigger, external_id,
    serial_key, limit_key, version, tags, options, input, created_at, segment_id, pinned_version)
select item.id, item.namespace, item.kind, item.name, item.queue, item.priority, item.status,
    item.reason, item.available_at, item.due_at, item.schedule_id, item.retry_of, item.root_id,
    item.parent_id, item.attempt, item.recoveries, item.trigger, item.external_id,
    item.serial_key, item.limit_key, item.version, item.tags, item.options, item.input, :now,
    item.segment_id, item.pinned_version
{from items: id text, namespace text, kind text, name text, queue text, priority int, status text, reason text, available_at int, due_at int, schedule_id text, retry_of text, root_id text, parent_id text, attempt int, recoveries int, trigger text, external_id text, serial_key text, limit_key text, version text, tags text, options text, input text, segment_id text, pinned_version text}
where true
on conflict do nothing
returning id

-- name: start_uniform
-- Many runs that share all but four columns.
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, root_id, attempt,
    recoveries, trigger, external_id, limit_key, version, tags, options, input, created_at)
select item.id, :namespace, :kind, :name, :queue, :priority, :status, :available_at, item.id, 1,
    0, :trigger, item.external_id, item.limit_key, :version, :tags, :options, item.input, :now
{from items: id text, external_id text, limit_key text, input text}
where true
on conflict do nothing

-- name: start_minimal
-- The same for runs that differ in id and input only. The one possible conflict is the id of a
-- repeated start. `on conflict` would look into every unique index for each row.
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, root_id, attempt,
    recoveries, trigger, version, tags, options, input, created_at)
select item.id, :namespace, :kind, :name, :queue, :priority, :status, :available_at, item.id, 1,
    0, :trigger, :version, :tags, :options, item.input, :now
{from items: id text, input text}

-- name: find_started
-- The runs that hold these external ids, for starts that found them taken.
select runs.id, runs.namespace, runs.name, runs.external_id
from runs {, items: namespace text, name text, external_id text}
where runs.namespace = item.namespace and runs.name = item.name
    and runs.external_id = item.external_id

-- name: find_in_the_way
-- A chain that holds a unique key is known by its first run.
select case when serial_key = :serial_key then root_id else id end from runs
where (namespace = :namespace and serial_key = :serial_key and finished_at is null)
    or (root_id = :root_id and retry_of = :retry_of)
    or (schedule_id = :schedule_id and due_at = :due_at and retry_of is null)
limit 1

-- name: find_ids
select id from runs where id {in ids}

-- name: put_payloads
insert into payloads (run_id, part, body)
select item.run_id, item.part, item.body
{from items: run_id text, part text, body text}
where true
on conflict (run_id, part) do update set body = excluded.body
