-- Telling others about executions of schedules: whom, and the runs that do it.

-- name: put_notice
insert into notices (schedule_id, body) values (:schedule_id, :body)
on conflict (schedule_id) do update set body = excluded.body

-- name: delete_notice
delete from notices where schedule_id = :schedule_id

-- name: notices_of
select schedule_id, body from notices where schedule_id {in ids}

-- name: ends_of_chains
-- The last attempt of each of these chains; one that was called off is nobody's news.
select runs.id, runs.root_id from runs
where (runs.id {in roots} or (runs.root_id {in roots} and runs.retry_of is not null))
    and runs.status <> 'cancelled'
    and not exists (select 1 from runs as later where later.retry_of = runs.id)

-- name: start_notices
-- The run that tells, beside what it tells of; its external id makes it one, whoever comes again.
insert into runs (id, namespace, kind, name, queue, priority, status, available_at, root_id,
    attempt, recoveries, trigger, external_id, input, created_at)
select item.id, runs.namespace, 'workflow', 'rota.notify', runs.queue, runs.priority, 'pending',
    :now, item.id, 1, 0, 'event', item.external_id, item.input, :now
from runs {, items: id text, schedule_id text, external_id text, input text}
where runs.id = item.schedule_id
on conflict do nothing
returning id

-- name: told_of
-- Which of these runs have been told of.
select external_id from runs
where namespace = :namespace and name = 'rota.notify' and external_id {in ids}
    and external_id is not null

-- name: execution_before
-- How the execution ended that came before one: the last that was due before it, or one that was
-- started by hand since and ended before it, whichever ended later.
select before.status, before.reason from (
    select * from (
        select runs.id, runs.status, runs.reason, runs.finished_at from runs
        where runs.schedule_id = :schedule_id and runs.schedule_id is not null
            and runs.due_at < :due_at
            and runs.status in ('completed', 'failed', 'crashed')
            and not exists (select 1 from runs as later where later.retry_of = runs.id)
        order by runs.due_at desc limit 1
    ) as due
    union all
    select runs.id, runs.status, runs.reason, runs.finished_at from runs
    where runs.schedule_id = :schedule_id and runs.schedule_id is not null
        and runs.due_at is null and runs.root_id <> :root_id and runs.finished_at < :ended_at
        and runs.status in ('completed', 'failed', 'crashed')
        and not exists (select 1 from runs as later where later.retry_of = runs.id)
) as before
order by before.finished_at desc, before.id desc limit 1
