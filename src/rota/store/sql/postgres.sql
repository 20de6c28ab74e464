-- What PostgreSQL says differently; each is counted.

-- name: has_migrations
select count(*) from pg_tables where schemaname = current_schema() and tablename = 'migrations'

-- name: make_schema
do $$ begin execute format('create schema if not exists %I', current_setting('search_path')); end $$

-- name: list_views
select viewname from pg_views where schemaname = current_schema()

-- name: lock_migrations
select pg_advisory_xact_lock(hashtext('rota'))

-- name: store_version
select 'PostgreSQL ' || current_setting('server_version')

-- name: server_clock
select (extract(epoch from clock_timestamp()) * 1000000)::bigint

-- name: notify
-- A word needs no disk: it may get lost, and whoever waits for it looks anyway.
select pg_notify(:channel, topic), set_config('synchronous_commit', 'off', true)
from unnest(:topics::text[]) as topic

-- name: complete_and_claim
-- Both in one round trip: the server works while we perform what was claimed before.
with done as ({query complete_runs} returning runs.id),
    taken as ({query claim_runs})
select (select count(*) from done) as done_count, taken.*
from (values (1)) as always (one) left join taken on true

-- name: fire_and_advance
-- Both in one round trip; each sees the templates as they were.
with moved as ({query advance_plain})
{query fire_plain}
