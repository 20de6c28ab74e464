-- What SQLite says differently; each is counted.

-- name: has_migrations
select count(*) from sqlite_master where type = 'table' and name = 'migrations'

-- name: make_schema
select 1

-- name: list_views
select name from sqlite_master where type = 'view'

-- name: lock_migrations
select 1

-- name: store_version
select 'SQLite ' || sqlite_version()
