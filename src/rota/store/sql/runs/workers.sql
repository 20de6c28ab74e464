-- Workers and queues.

-- name: put_worker
insert into workers (id, namespace, host, pid, pid_started, queues, names, seats, status, version,
    started_at, heartbeat_at, code_id, held_threads, workflow_blocks)
values (:id, :namespace, :host, :pid, :pid_started, :queues, :names, :slots, 'online', :version,
    :started_at, :heartbeat_at, :code_id, :held_threads, :workflow_blocks)

-- name: put_code_set
insert into code_sets (id, namespace, seen_at) values (:id, :namespace, :now)
on conflict (id) do nothing
returning id

-- name: touch_code_set
update code_sets set seen_at = :now where id = :id

-- name: put_code_digests
insert into code_digests (code_id, name, digest)
select :id, item.name, item.digest
{from items: name text, digest text}

-- name: forget_code_sets
delete from code_sets where namespace = :namespace and seen_at < :before
    and not exists (select 1 from workers where workers.namespace = :namespace
        and workers.code_id = code_sets.id)

-- name: beat
-- A worker that was marked offline is online again after its next heartbeat. The answer says whether
-- a run waits that is executed alone, and whether the database is disarmed.
update workers set heartbeat_at = :now, status = :status, stopped_at = null,
    code_id = :code_id, held_threads = :held_threads, workflow_blocks = :workflow_blocks
where id = :id
returning id, exists (select 1 from runs where runs.namespace = workers.namespace
    and runs.queue {in queues} and runs.status = 'pending' and runs.recoveries >= 2
    and {served runs}),
    (select at from disarmed where id = 1), (select reason from disarmed where id = 1)

-- name: stop_workers
-- A worker that still holds a run stays online: recovery finds the run through this row.
update workers set status = 'offline', stopped_at = :now
where id {in ids} and status <> 'offline'
    and not exists (select 1 from runs where runs.namespace = workers.namespace
        and runs.status = 'running' and runs.lease_owner = workers.id)

-- name: heartbeats_of_others
select max(case when heartbeat_at <= :until then heartbeat_at end), max(heartbeat_at) from workers
where namespace = :namespace and id <> :id

-- name: correct_heartbeats
update workers set heartbeat_at = :now
where namespace = :namespace and id <> :id and heartbeat_at > :now

-- name: page_of_workers
-- With a text in the name of their machine, in the order of their start, after one of them.
select id, namespace, host, pid, pid_started, queues, names, seats, status, version, started_at,
    heartbeat_at, stopped_at, code_id, held_threads, workflow_blocks
from workers
where namespace = :namespace and (:all_of_them = 1 or status <> 'offline')
    and (:search = '' or replace(lower(host), lower(:search), '') <> lower(host))
    and (:after = '' or (started_at, id) > (
        select last.started_at, last.id from workers as last where last.id = :after))
order by started_at, id limit :limit

-- name: find_worker
select id from workers where id = :id

-- name: forget_workers
delete from workers where namespace = :namespace and status = 'offline' and stopped_at < :before

-- name: put_queue
insert into queues (namespace, name, running_max, key_running_max, rate_count, rate_per_us,
    key_open_max, age_us, round_robin)
values (:namespace, :name, :running_max, :key_running_max, :rate_count, :rate_per_us,
    :key_open_max, :age_us, :round_robin)
on conflict (namespace, name) do update
set running_max = excluded.running_max, key_running_max = excluded.key_running_max,
    rate_count = excluded.rate_count, rate_per_us = excluded.rate_per_us,
    key_open_max = excluded.key_open_max, age_us = excluded.age_us,
    round_robin = excluded.round_robin

-- name: list_queues
select {queue columns} from queues where namespace = :namespace order by name

-- name: lock_queue
-- The lock makes counting and claiming one act across all workers.
select {queue columns} from queues where namespace = :namespace and name = :name
{lock}

-- name: move_queue_clock
update queues set ready_at = :ready_at where namespace = :namespace and name = :name

-- name: pause_queue
insert into queues (namespace, name, paused) values (:namespace, :name, :paused)
on conflict (namespace, name) do update set paused = excluded.paused

-- name: list_migrations
select number, checksum from migrations order by number

-- name: record_migration
insert into migrations (number, name, checksum, applied_at)
values (:number, :name, :checksum, :now)
on conflict (number) do update set checksum = excluded.checksum, applied_at = excluded.applied_at
