-- The overrides for SQLite; each is counted.

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
-- The result of claim_runs as one JSON value: fetching row by row would release and take the GIL for
-- each. While the event loop executes runs, that is most of the cost of a claim. Beside it the places
-- of the same runs in the table. The JSON is built in the inner select; otherwise SQLite copies each
-- row column by column.
select '[' || coalesce(group_concat(line), '') || ']', json_group_array(place) from (
    select {claim array} as line, rowid as place from runs
    where {claimable runs}
        and not exists ({query paused_queue})
    order by priority desc, available_at, id
    limit :limit
)

-- name: take_runs
-- The other half: no other process can have written in between.
update runs {query set_claimed}
where rowid {in places}
