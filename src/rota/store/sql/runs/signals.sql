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
-- The signals that a chain waits for now; `output` holds the shape of the value until there is one.
select steps.key, steps.output
from runs join steps on steps.root_id = coalesce(runs.segment_id, runs.root_id)
where (runs.id = :root_id or (runs.root_id = :root_id and runs.retry_of is not null))
    and runs.status in ('pending', 'running', 'sleeping', 'waiting')
    and steps.kind = 'signal' and steps.status = 'waiting'

-- name: take_signal
update signals set taken_by = :key where id = :id

-- name: give_back_signal
update signals set taken_by = null where root_id = :root_id and taken_by = :key

-- name: give_back_signals
update signals set taken_by = null
{from items: root_id text, key text}
where signals.root_id = item.root_id and signals.taken_by = item.key

-- name: delete_taken_signals
delete from signals where root_id {in roots} and taken_by is not null

-- name: end_wait
-- Only for a wait that its code has cancelled: otherwise a completed step never changes.
update steps set status = 'failed', output = null, error = :error
where root_id = :root_id and key = :key and kind = 'signal'
