-- The table in the user's own database that holds the keys of effects, written in the same
-- transaction as the effect. One text for SQLite and PostgreSQL. `bounded_read`, on PostgreSQL
-- alone, wraps a query of the user: a row that is too big is an error of the server, which depends on
-- the row because a constant would fail at once.

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

-- name: bounded_read
select * from (
{query}
) as rota_row_too_big
where case
    when octet_length((rota_row_too_big.*)::text) > {limit}
    then cast(left('rota_row_too_big', octet_length((rota_row_too_big.*)::text)) as int)
end is null
