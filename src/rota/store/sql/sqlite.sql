-- What SQLite says differently; each is counted.

-- name: has_migrations
select count(*) from sqlite_master where type = 'table' and name = 'migrations'

-- name: make_schema
select 1

-- name: prepare_migration
select 1

-- name: list_tables
select name from sqlite_master where type = 'table'

-- name: store_version
select 'SQLite ' || sqlite_version()

-- name: ready_runs
-- What claim_runs would take, as one value: each row that is handed over costs a change of the
-- interpreter lock, and while the event loop performs runs, that is most of what a claim costs.
-- Beside it the places of the same runs in the table. Lines are made where the row is read: a row
-- that leaves the inner select is copied column by column.
select '[' || coalesce(group_concat(line), '') || ']', json_group_array(place) from (
    select {claim array} as line, rowid as place from runs
    where namespace = :namespace and queue = :queue and status = 'pending' and {served runs}
        and recoveries < 2
        and not exists (select 1 from queues
            where queues.namespace = :namespace and queues.name = :queue and queues.paused = 1)
    order by priority desc, available_at, id
    limit :limit
)

-- name: take_runs
-- The other half: nobody else can have written in between.
update runs
set status = 'running', reason = null, lease_owner = :worker_id, lease_until = :lease_until,
    claim_count = claim_count + 1, wake_requested = 0, started_at = coalesce(started_at, :now)
where rowid {in places}
