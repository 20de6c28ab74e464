-- Automations: what is deployed, and the one open run of each.

-- name: lock_automation
-- Publishing to an automation, commands to it and settling its run take this lock first. So no
-- trigger is lost between the look for work and the row that sleeps.
select {automation columns} from automations
where namespace = :namespace and name = :name
{lock}

-- name: hold_open_runs
-- The same for runs in progress, with their claims and handlers; after a lost claim there is no row.
-- Rows are locked by run id, as renewals do, an automation before its run: no other transaction
-- locks several.
select runs.id, {automation columns}, {handler columns} from automations
join runs on runs.namespace = automations.namespace and runs.name = automations.name
join handlers on handlers.namespace = automations.namespace
    and handlers.automation = automations.name
{, items: run_id text, claim_count int, lease_owner text}
where runs.id = item.run_id and runs.claim_count = item.claim_count
    and runs.lease_owner = item.lease_owner
order by runs.id, handlers.position
{lock}

-- name: held_run
-- The claim alone, locked: enough for what only this run's chain is concerned with.
select id from runs where id = :run_id and claim_count = :claim_count and lease_owner = :lease_owner
{lock}

-- name: get_automation
select {automation columns} from automations where namespace = :namespace and name = :name

-- name: list_automations
select {automation columns} from automations
where namespace = :namespace and name > :after and (:archived = 1 or status <> 'archived')
    and (:search = '' or replace(lower(name), lower(:search), '') <> lower(name))
order by name limit :limit

-- name: automation_digests
select name, digest from automations where namespace = :namespace

-- name: add_automations
insert into automations (namespace, name, status, queue, version, digest, created_at, updated_at)
select :namespace, item.name, 'active', item.queue, 1, item.digest, :now, :now
{from items: name text, queue text, digest text}
where true
on conflict (namespace, name) do nothing
returning name

-- name: change_automation
update automations
set queue = :queue, version = :version, digest = :digest, failures = 0, fixes = 0,
    waits_for = null, waits_since = null, waits_count = 0, updated_at = :now
where namespace = :namespace and name = :name

-- name: put_definitions
insert into definitions (namespace, automation, version, digest, made_by, graph, source, parts,
    restores, comment, created_at)
select :namespace, item.automation, item.version, item.digest, :made_by, item.graph, item.source,
    item.parts, :restores, :comment, :now
{from items: automation text, version int, digest text, graph text, source text, parts text}

-- name: has_digest
select version from definitions
where namespace = :namespace and automation = :automation and digest = :digest limit 1

-- name: prune_definitions
-- The newest version that was deployed stays: a fix in force is about its source.
delete from definitions
where namespace = :namespace and automation = :automation and version <= :until
    and version <> (select max(deployed.version) from definitions as deployed
        where deployed.namespace = :namespace and deployed.automation = :automation
            and deployed.made_by = 'deploy')
returning version

-- name: put_refused
insert into refused_deploys (namespace, automation, problems, host, refused_at)
select :namespace, item.automation, item.problems, :host, :now
{from items: automation text, problems text}
where true
on conflict (namespace, automation) do update
set problems = excluded.problems, host = excluded.host, refused_at = excluded.refused_at

-- name: forget_refused
delete from refused_deploys where namespace = :namespace and automation {in names}

-- name: refused_deploys
select automation, problems, host, refused_at from refused_deploys
where namespace = :namespace order by automation

-- name: code_of_workers
-- The code that each worker has of these automations, and the version deployed from that code.
select code_digests.name, workers.id, code_digests.digest, (
    select max(definitions.version) from definitions
    where definitions.namespace = :namespace and definitions.automation = code_digests.name
        and definitions.digest = code_digests.digest and definitions.made_by = 'deploy') as version
from workers join code_digests on code_digests.code_id = workers.code_id
where workers.namespace = :namespace and workers.status <> 'offline'
    and code_digests.name {in names}
order by code_digests.name, workers.id

-- name: versions_without_worker
-- Automations of which none of these workers has the deployed code.
select automations.name, automations.version from automations
where automations.namespace = :namespace and automations.status = 'active'
    and not exists (select 1 from workers
        join code_digests on code_digests.code_id = workers.code_id
        where workers.id {in workers} and code_digests.name = automations.name
            and code_digests.digest = automations.digest)
order by automations.name limit :limit

-- name: rename_handlers
update handlers set name = item.name
{from items: name text, before text}
where handlers.namespace = :namespace and handlers.automation = :automation
    and handlers.name = item.before

-- name: rename_handlers_of_chain
-- A run in the middle of its work continues under the new name.
update handler_runs set handler = item.name
{from items: name text, before text}
where handler_runs.root_id = :root_id and handler_runs.handler = item.before

-- name: definitions_of
select {definition columns} from definitions
where namespace = :namespace and automation = :automation
order by version desc limit :limit

-- name: fix_sources
select definitions.automation, definitions.source from definitions
{, items: namespace text, automation text, version int}
where definitions.namespace = item.namespace and definitions.automation = item.automation
    and definitions.version = item.version and definitions.made_by = 'fix'

-- name: put_handlers
insert into handlers (namespace, automation, name, kind, position, digest, spec, written, next_run_at, marked)
select :namespace, item.automation, item.name, item.kind, item.position, item.digest, item.spec,
    item.written, item.next_run_at, item.marked
{from items: automation text, name text, kind text, position int, digest text, spec text, written text, next_run_at int, marked int}
where true
on conflict (namespace, automation, name) do update
set kind = excluded.kind, position = excluded.position, digest = excluded.digest,
    spec = excluded.spec, written = excluded.written, next_run_at = excluded.next_run_at,
    marked = excluded.marked,
    queued_at = case when excluded.kind = 'producer' then handlers.queued_at end,
    wake_at = case when excluded.kind = 'consumer' then handlers.wake_at end

-- name: drop_handlers
delete from handlers
where namespace = :namespace and automation = :automation and not (name {in names})

-- name: handlers_of
select automation, {handler columns} from handlers
where namespace = :namespace and automation {in automations} order by automation, position

-- name: put_topics
insert into topics (namespace, automation, name, consumer, external, shape)
select :namespace, item.automation, item.name, item.consumer, item.external, item.shape
{from items: automation text, name text, consumer text, external int, shape text}
where true
on conflict (namespace, automation, name) do update
set consumer = excluded.consumer, external = excluded.external, shape = excluded.shape, declared = 1

-- name: drop_topics
update topics set declared = 0, consumer = null
where namespace = :namespace and automation = :automation and not (name {in names})

-- name: topics_of
select name, external, shape from topics
where namespace = :namespace and automation = :automation and declared = 1 order by name

-- name: set_automation_status
update automations set status = :status, updated_at = :now
where namespace = :namespace and name = :name

-- name: count_troubles
update automations set failures = :failures, fixes = :fixes, waits_for = :waits_for,
    waits_since = :waits_since, waits_count = :waits_count
where namespace = :namespace and name = :name

-- name: set_automation_version
update automations set version = :version, fixes = :fixes, updated_at = :now
where namespace = :namespace and name = :name

-- name: insert_open_runs
insert into runs (id, namespace, kind, name, queue, priority, status, reason, available_at, retry_of,
    root_id, attempt, recoveries, trigger, serial_key, created_at)
select item.id, :namespace, 'automation', item.name, item.queue, 0, item.status, item.reason,
    item.available_at, item.retry_of, item.root_id, item.attempt, 0, item.trigger, item.serial_key,
    :now
{from items: id text, name text, queue text, status text, reason text, available_at int, retry_of text, root_id text, attempt int, trigger text, serial_key text}
where true
on conflict do nothing
returning id

-- name: open_runs
select {run columns} from runs
where namespace = :namespace and serial_key {in serial_keys} and serial_key is not null
    and finished_at is null

-- name: orphaned_chains
-- The last run of each chain that has ended and left something open: a side effect that is not
-- settled, or events that it still holds.
select left_open.automation, latest.id, latest.root_id, latest.attempt from (
    select namespace, automation, root_id from mutations
    where namespace = :namespace and status <> 'applied' and status <> 'failed'
        and status <> 'skipped'
    union
    select events.namespace, events.automation, owner.root_id
    from events join runs as owner on owner.id = events.reserved_by
    where events.namespace = :namespace and events.status = 'reserved'
) as left_open
join runs as latest on latest.id = left_open.root_id
    or (latest.root_id = left_open.root_id and latest.retry_of is not null)
where (:automation = '' or left_open.automation = :automation) and latest.finished_at is not null
    and not exists (select 1 from runs as successor where successor.retry_of = latest.id)
order by latest.id

-- name: join_chain
-- An open run that has done nothing yet continues a chain instead.
update runs set status = 'pending', reason = null, available_at = :now, trigger = 'retry',
    retry_of = :retry_of, root_id = :root_id, attempt = :attempt
where id = :id and root_id = id
    and (status = 'pending' or (status = 'sleeping'
        and (reason = 'idle' or reason = 'event' or reason = 'paused')))
    and not exists (select 1 from handler_runs where handler_runs.run_id = runs.id)
returning id

-- name: poke_open_run
-- Only an open run that has nothing to do is moved: a pause, a back-off or a reconciliation continues.
update runs set status = 'pending', reason = null, available_at = :now
where namespace = :namespace and serial_key = :serial_key and status = 'sleeping'
    and finished_at is null and (reason = 'idle' or reason = 'event')
returning id

-- name: retime_open_run
update runs set status = :status, reason = :reason, available_at = :available_at
where id = :id and (status = 'pending' or status = 'sleeping')
returning id

-- name: resolve_open_run
-- A person let it continue: its error is forgotten, and its crashes are forgiven.
update runs set status = 'pending', reason = null, available_at = :now, error = null,
    attempt = attempt + 1, recoveries = 0
where id = :id and status = 'waiting'
returning id
