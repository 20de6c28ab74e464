-- The table in the user's own database that holds the keys of effects, written in the same
-- transaction as the effect. One text for SQLite and PostgreSQL.

-- name: make_table
create table if not exists {table} (
    key text primary key,
    tool text not null,
    result text,
    applied_at text not null default (cast(current_timestamp as text))
)

-- name: find_effect
select result from {table} where key = :key

-- name: record_effect
insert into {table} (key, tool, result) values (:key, :tool, :result)
