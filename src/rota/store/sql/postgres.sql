-- The overrides for PostgreSQL; each is counted.

-- name: has_migrations
select count(*) from pg_tables where schemaname = '{schema}' and tablename = 'migrations'

-- name: make_schema
-- Only where it is missing: `if not exists` wants the right to create one in any case.
do $$ begin
    if to_regnamespace('{schema}') is null then
        create schema {schema};
    end if;
end $$

-- name: prepare_migration
-- Migrations and views name no schema; this transaction has one.
select set_config('lock_timeout', :lock_timeout, true), set_config('statement_timeout', '0', true),
    set_config('search_path', '{schema}', true)

-- name: list_tables
select tablename from pg_tables where schemaname = '{schema}'

-- name: server_identity
select current_database(), pg_postmaster_start_time()::text

-- name: table_grants
select tablename, tableowner::text, pg_has_role(tableowner, 'usage'),
    has_table_privilege(format('%I.%I', schemaname, tablename), 'select'),
    has_table_privilege(format('%I.%I', schemaname, tablename), 'insert'),
    has_table_privilege(format('%I.%I', schemaname, tablename), 'update'),
    has_table_privilege(format('%I.%I', schemaname, tablename), 'delete')
from pg_tables where schemaname = '{schema}' order by tablename

-- name: role_state
select current_user::text, has_schema_privilege('{schema}', 'create')

-- name: session_settings
select current_user::text, name, setting from pg_settings where name {in names}

-- name: default_grants
-- The rights of this role on tables that the owner makes later.
select distinct lower(acl.privilege_type)
from pg_default_acl as defaults, aclexplode(defaults.defaclacl) as acl
where defaults.defaclobjtype = 'r' and defaults.defaclrole = :owner::text::regrole
    and defaults.defaclnamespace in (0, (select oid from pg_namespace where nspname = '{schema}'))
    and (acl.grantee = 0 or pg_has_role(acl.grantee, 'usage'))

-- name: store_version
select 'PostgreSQL ' || current_setting('server_version')

-- name: server_clock
select (extract(epoch from clock_timestamp()) * 1000000)::bigint

-- name: notify
-- NOTIFY need not be durable: listeners also poll.
select pg_notify(:channel, topic || {seed}), set_config('synchronous_commit', 'off', true)
from unnest(:topics::text[]) as topic

-- name: claim_runs
-- The CTE fixes the picked set before the update, which otherwise may exceed the limit. The row locks
-- keep each `ctid` valid, so the update finds the rows without another index lookup.
with picked as (
    select ctid from runs
    where {claimable runs}
        and not exists ({query paused_queue})
    order by priority desc, available_at, id
    limit :limit
    {skip_locked}
)
update runs {query set_claimed}
where ctid = any (array(select ctid from picked))
returning {claim columns}

-- name: claim_runs_after
-- The same, from behind the last claimed run. While a snapshot is open, index entries of claimed runs
-- remain, and a claim from the front would read them all.
with unpaused as (select 1 where not exists ({query paused_queue})),
higher as (
    select ctid from runs
    where {claimable runs} and exists (select 1 from unpaused) and priority > :after_priority
    order by priority desc, available_at, id
    limit :limit
    {skip_locked}
),
behind as (
    select ctid from runs
    where {claimable runs} and exists (select 1 from unpaused) and priority = :after_priority
        and (available_at, id) > (:after_at, :after_id)
    order by priority desc, available_at, id
    limit :limit - (select count(*) from higher)
    {skip_locked}
),
lower as (
    select ctid from runs
    where {claimable runs} and exists (select 1 from unpaused) and priority < :after_priority
    order by priority desc, available_at, id
    limit :limit - (select count(*) from higher) - (select count(*) from behind)
    {skip_locked}
),
picked as (
    select ctid from higher union all select ctid from behind union all select ctid from lower
)
update runs {query set_claimed}
where ctid = any (array(select ctid from picked))
returning {claim columns}

-- name: keyed_runs
-- As `lateral`: before version 18 the server reads the whole table for each key otherwise.
item cross join lateral (
    select next.id, next.priority, next.available_at {query first_of_key}) as runs

-- name: complete_and_claim
-- Both in one round trip: the server works while we execute the runs claimed before.
with done as ({query complete_runs} returning runs.id),
    taken as ({query claim_runs})
select (select count(*) from done) as done_count, taken.*
from (values (1)) as always (one) left join taken on true

-- name: complete_and_claim_after
with done as ({query complete_runs} returning runs.id),
    taken as ({query claim_runs_after})
select (select count(*) from done) as done_count, taken.*
from (values (1)) as always (one) left join taken on true

-- name: note_prepared
-- A checkpoint in one round trip: all of its events are pinned, or nothing happens.
with held as ({query held_run}),
wanted as (
    select events.id from events {, items: topic text, message_id text, revision int}
    where events.namespace = :namespace and events.automation = :automation
        and events.topic = item.topic and events.message_id = item.message_id
        and (item.revision < 0 or item.revision = events.revision)
        and events.status = 'pending' and exists (select 1 from held)
    for update of events
),
whole as (select held.id from held where (select count(*) from wanted) = :reserved_count),
pinned as (
    update events set status = 'reserved', reserved_by = :run_id, updated_at = :now
    where id in (select wanted.id from wanted, whole)
    returning id
),
noted as (
    insert into reservations (run_id, event_id, act, at)
    select :run_id, id, 'reserved', :now from pinned
),
woken as (
    update handlers set wake_at = :wake_at
    where namespace = :namespace and automation = :automation and name = :handler
        and kind = 'consumer' and wake_at is distinct from :wake_at
        and exists (select 1 from whole)
),
moved as (
    update handler_runs set phase = :phase, prepared = :prepared, remark = :remark, logs = :logs,
        reserved_count = :reserved_count
    where run_id in (select id from whole)
    returning run_id
)
select (select count(*) from held), (select count(*) from moved)

-- name: begin_call
with moved as ({query move_handler_run})
insert into mutations (id, root_id, run_id, namespace, automation, handler, tool, safety, params,
    title, status, created_at, updated_at)
select :id, :root_id, :run_id, :namespace, :automation, :handler, :tool, :safety, :params, :title,
    :status, :now, :now
from moved
on conflict do nothing
returning {mutation columns}

-- name: end_call
with ended as ({query move_handler_run}),
moved as (
    update mutations
    set status = :status, result = :result, error = :error, resolved_by = :resolved_by,
        updated_at = :now
    where id = :id and status {in sources} and exists (select 1 from ended)
    returning id
)
select (select count(*) from ended), (select count(*) from moved)

-- name: close_handler_runs
-- The writes of handler runs that publish nothing, but for the ends of their runs.
with noted as ({query note_used}),
used as ({query use_events}),
ended as ({query commit_handler_runs})
{query commit_handlers}

-- name: peek_topics
-- Events of several topics, each found by the index: SQLite has no `lateral`, and no round trips.
select item.place, found.*
from (values (1)) as always (one) {, items: place int, automation text, topic text, most int}
cross join lateral (
    select {event columns} from events
    where events.namespace = :namespace and events.automation = item.automation
        and events.topic = item.topic and events.status = 'pending'
    order by events.id limit item.most
) as found
order by item.place, found.id
