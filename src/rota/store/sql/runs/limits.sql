-- Claims from queues with limits that hold until the end, or that are fair among keys or
-- priorities.

-- name: waiting_keys
select waiting.key, coalesce(key_turns.served_at, 0) as served_at
from ({query pending_keys}) as waiting
left join key_turns on key_turns.namespace = :namespace and key_turns.queue = :queue
    and key_turns.limit_key = waiting.key
order by served_at, waiting.key
limit :limit

-- name: open_of_holder
-- A chain holds a place in the queue of its open run.
select 1 from runs as alive
where alive.finished_at is null and alive.queue = key_holders.queue
    and (alive.id = key_holders.root_id
        or (alive.root_id = key_holders.root_id and alive.retry_of is not null))

-- name: pick_open
-- For each key: its first pending run while it has a place left, otherwise a run that holds one.
select case when (
        select count(*) from key_holders
        where key_holders.namespace = :namespace and key_holders.queue = :queue
            and key_holders.limit_key = item.key
            and exists ({query open_of_holder})
    ) < :key_open_max
    then (select next.id {query first_of_key})
    else (
        select next.id from key_holders join runs as next on next.id = key_holders.root_id
            or (next.root_id = key_holders.root_id and next.retry_of is not null)
        where key_holders.namespace = :namespace and key_holders.queue = :queue
            and key_holders.limit_key = item.key and next.queue = :queue
            and next.status = 'pending' and {served next} and next.recoveries < 2
        order by next.priority desc, next.available_at, next.id
        limit 1)
    end as id
{from items: key text}

-- name: pick_of_keys
-- The first runs of each key, in their order, as one text: a limit per row cannot be said otherwise
-- in the SQL that both databases share.
select item.key as key, (
    select string_agg(first.id, ' ') from (select next.id {query first_of_key}) as first) as ids
{from items: key text}

-- name: places_of
select id, priority, available_at, limit_key, root_id from runs where id {in ids}

-- name: drop_holders
-- Chains that are over, or in another queue now, hold nothing here.
delete from key_holders
where namespace = :namespace and queue = :queue and limit_key {in keys}
    and not exists ({query open_of_holder})

-- name: hold_keys
insert into key_holders (root_id, namespace, queue, limit_key)
select item.root_id, :namespace, :queue, item.limit_key
{from items: root_id text, limit_key text}
where true
on conflict (root_id) do update set queue = excluded.queue
where key_holders.queue <> excluded.queue

-- name: holders_of
select key_holders.root_id from key_holders
where key_holders.namespace = :namespace and key_holders.queue = :queue
    and key_holders.limit_key = :key
    and exists ({query open_of_holder})

-- name: served_of
select limit_key, served_at from key_turns
where namespace = :namespace and queue = :queue and limit_key {in keys}

-- name: last_served
select coalesce(max(served_at), 0) from key_turns where namespace = :namespace and queue = :queue

-- name: serve_keys
insert into key_turns (namespace, queue, limit_key, served_at)
select :namespace, :queue, item.key, item.served_at
{from items: key text, served_at int}
where true
on conflict (namespace, queue, limit_key) do update set served_at = excluded.served_at

-- name: forget_served
delete from key_turns where namespace = :namespace and queue = :queue and served_at < :before

-- name: waiting_priorities
with recursive waiting (priority) as (
    select max(priority) from runs
    where namespace = :namespace and queue = :queue and status = 'pending'
    union all
    select (select max(priority) from runs
        where namespace = :namespace and queue = :queue and status = 'pending'
            and priority < waiting.priority)
    from waiting where waiting.priority is not null
)
select priority from waiting where priority is not null

-- name: pick_priority
select id, priority, available_at from runs
where namespace = :namespace and queue = :queue and status = 'pending' and priority = :priority
    and {served runs} and recoveries < 2
order by available_at, id
limit :limit
