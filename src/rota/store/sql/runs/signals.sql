-- name: send_signal
insert into signals (id, root_id, name, body, created_at)
select item.id, item.root_id, item.name, item.body, :now
{from items: id text, root_id text, name text, body text}
where true
on conflict (id) do nothing
returning id

-- name: oldest_signal
select id, body from signals
where root_id = :root_id and name = :name and taken_by is null
order by id limit 1
{lock}

-- name: untaken_signals
select id, body from signals
where root_id = :root_id and name = :name and taken_by is null
order by id

-- name: signal_waits
-- The signal that a chain waits for now; `output` holds the shape of the value until there is one.
select key, output from steps
where root_id = :root_id and kind = 'signal' and status = 'waiting'

-- name: take_signal
update signals set taken_by = :key where id = :id
