-- Events of topics, who has them, and the inputs they come from.

-- name: publish_events
-- The last write wins while the event is pending. A reserved event keeps the payload that its run
-- has seen; a newer one waits beside it. The same again does not count as a change.
insert into events (id, namespace, automation, topic, message_id, payload, status, created_by,
    created_at, updated_at)
select item.id, :namespace, :automation, item.topic, item.message_id, item.payload, 'pending',
    :created_by, :now, :now
{from items: id text, topic text, message_id text, payload text}
where true
on conflict (namespace, automation, topic, message_id) do update
set payload = case when events.status = 'pending' then excluded.payload else events.payload end,
    revision = case when events.status = 'pending' then events.revision + 1 else events.revision end,
    correction = case when events.status = 'reserved' then nullif(excluded.payload, events.payload) end,
    updated_at = excluded.updated_at
where (events.status = 'pending' or events.status = 'reserved')
    and coalesce(events.correction, events.payload) <> excluded.payload
returning id, topic, message_id, status

-- name: mark_readers
update handlers set marked = marked + 1
where namespace = :namespace and automation = :automation and kind = 'consumer'
    and name in (select consumer from topics where topics.namespace = :namespace
        and topics.automation = :automation and topics.name {in topics})
returning name, marked

-- name: put_inputs
insert into inputs (id, namespace, automation, source, type, external_id, title, created_by, created_at)
select item.id, :namespace, :automation, item.source, item.type, item.external_id, item.title,
    :created_by, :now
{from items: id text, source text, type text, external_id text, title text}
where true
on conflict (namespace, automation, source, type, external_id) do update set title = excluded.title
returning id, source, type, external_id

-- name: put_causes
insert into causes (event_id, input_id)
select item.event_id, item.input_id
{from items: event_id text, input_id text}
where true
on conflict do nothing

-- name: causes_of_run
select distinct causes.input_id from causes join events on events.id = causes.event_id
where events.reserved_by = :run_id

-- name: peek_events
select {event columns} from events
where namespace = :namespace and automation = :automation and topic = :topic and status = 'pending'
order by id limit :limit

-- name: events_named
select {event columns} from events
where namespace = :namespace and automation = :automation and topic = :topic
    and message_id {in message_ids}
order by id

-- name: events_by_id
select {event columns} from events where id {in ids} order by id

-- name: oldest_events
-- Topic by topic: the first of each is found without counting the others.
select topics.consumer, (select min(events.id) from events
    where events.namespace = topics.namespace and events.automation = topics.automation
        and events.topic = topics.name and events.status = 'pending')
from topics
where topics.namespace = :namespace and topics.automation = :automation
    and topics.consumer is not null

-- name: reserve_events
update events set status = 'reserved', reserved_by = :run_id, updated_at = :now
where status = 'pending' and (namespace, automation, topic, message_id) in (
    select :namespace, :automation, item.topic, item.message_id
    {from items: topic text, message_id text})
returning topic, message_id, revision

-- name: note_owned
-- History first: the next change of the events that a chain has reserved.
insert into reservations (run_id, event_id, act, at)
select events.reserved_by, events.id, :act, :now from events
where events.reserved_by in (select id from runs where id = :root_id
    or (root_id = :root_id and retry_of is not null))
on conflict do nothing

-- name: note_held
insert into reservations (run_id, event_id, act, at)
select :run_id, id, :act, :now from events where reserved_by = :run_id
on conflict do nothing

-- name: release_events
-- Events published meanwhile count from here on.
update events set status = 'pending', reserved_by = null, attempt = attempt + 1, updated_at = :now,
    payload = coalesce(correction, payload), correction = null,
    revision = case when correction is null then revision else revision + 1 end
where reserved_by in (select id from runs where id = :root_id
    or (root_id = :root_id and retry_of is not null))
returning id

-- name: release_corrected
update events set status = 'pending', reserved_by = null, attempt = attempt + 1, updated_at = :now,
    payload = correction, correction = null, revision = revision + 1
where reserved_by = :run_id and correction is not null
returning id

-- name: note_used
insert into reservations (run_id, event_id, act, at)
select item.run_id, events.id, item.used, :now
from events {, items: {query ended_handler_run}}
where events.reserved_by = item.run_id
on conflict do nothing

-- name: use_events
update events set status = item.used, reserved_by = null, updated_at = :now
{from items: {query ended_handler_run}}
where events.reserved_by = item.run_id

-- name: transfer_events
update events set reserved_by = :run_id, updated_at = :now
where reserved_by in (select id from runs where id = :root_id
    or (root_id = :root_id and retry_of is not null)) and reserved_by <> :run_id
returning id

-- name: skip_event
update events set status = 'skipped', updated_at = :now
where namespace = :namespace and automation = :automation and topic = :topic
    and message_id = :message_id and status = 'pending'
returning id

-- name: requeue_event
-- Its inputs are no longer skipped either: giving the event back includes what it leads to.
update events set status = 'pending', attempt = attempt + 1, updated_at = :now
where id = :id and status = 'skipped'
returning id

-- name: unskip_inputs
update inputs set skipped_at = null
where skipped_at is not null and id in (select input_id from causes where event_id = :event_id)

-- name: close_letter
update events set status = 'consumed', updated_at = :now where id = :id and status = 'pending'

-- name: skip_input
update inputs set skipped_at = :now
where namespace = :namespace and automation = :automation and id = :id and skipped_at is null
returning id

-- name: skip_caused
-- Pending events that come from nothing but skipped inputs.
update events set status = 'skipped', updated_at = :now
where namespace = :namespace and automation = :automation and status = 'pending'
    and id in (select causes.event_id from causes join inputs on inputs.id = causes.input_id
        where inputs.namespace = :namespace and inputs.automation = :automation
            and inputs.skipped_at is not null)
    and not exists (select 1 from causes join inputs on inputs.id = causes.input_id
        where causes.event_id = events.id and inputs.skipped_at is null)
returning id

-- name: has_skipped_input
select 1 from inputs
where namespace = :namespace and automation = :automation and skipped_at is not null limit 1

-- name: taken_by_runs
-- The events that these runs pinned or could not read, whatever became of them.
select distinct reservations.run_id, events.status, events.id, events.topic, events.message_id
from reservations join events on events.id = reservations.event_id
where reservations.run_id {in run_ids}
    and (reservations.act = 'reserved' or reservations.act = 'refused')
order by events.id

-- name: oldest_named
-- The oldest pending event of each consumer of these automations.
select topics.automation, topics.consumer, events.id, events.topic, events.message_id
from events join topics
    on topics.namespace = events.namespace and topics.automation = events.automation
    and topics.name = events.topic
where events.id in (select min(waits.id) from topics as read join events as waits
        on waits.namespace = read.namespace and waits.automation = read.automation
        and waits.topic = read.name and waits.status = 'pending'
    where read.namespace = :namespace and read.automation {in automations}
        and read.consumer is not null
    group by read.automation, read.consumer)

-- name: skip_events
update events set status = 'skipped', reserved_by = null, updated_at = :now
where id {in ids} and (status = 'pending' or status = 'reserved')
returning id

-- name: set_apart
update events set alone = 1 where id {in ids} and alone = 0 and status = 'pending'
returning id

-- name: put_together
update events set alone = 2
where namespace = :namespace and automation = :automation and topic {in topics}
    and alone = 1 and status = 'pending'
returning id

-- name: put_reservations
insert into reservations (run_id, event_id, act, at)
select :run_id, item.event_id, :act, :now
{from items: event_id text}
where true
on conflict do nothing

-- name: prunable_events
-- By id, oldest first: no index of its own would be worth its cost on every event that is used.
select id from events
where id < :before_id and namespace = :namespace and updated_at < :before_at
    and (status = 'consumed' or status = 'skipped')
order by id limit :limit

-- name: inputs_of_events
select distinct input_id from causes where event_id {in ids}

-- name: delete_events
delete from events where id {in ids} and (status = 'consumed' or status = 'skipped')

-- name: delete_spent_inputs
delete from inputs where id {in ids}
    and not exists (select 1 from causes where causes.input_id = inputs.id)
