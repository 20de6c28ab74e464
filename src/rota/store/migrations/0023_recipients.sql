-- A schedule's own receivers (the `notify` block of a pipeline.yaml) get their messages from recorded
-- notifications, as rules do. The row holds the receivers until they are dispatched. A dispatcher of
-- the version before leaves them, so the next one of this version finds them.
alter table notifications add column recipients {text};
drop index notifications_new;
create index notifications_pending on notifications (namespace, id)
    where dispatched_at is null or recipients is not null;

-- A recovery is known by an open row of trouble. Schedules with receivers and a failed last execution
-- get the row that the version before did not record.
insert into notifications (id, namespace, kind, source, name, schedule, queue, tags, subject,
    run_id, details, created_at, is_open, dispatched_at, sent_to)
select last.id, last.namespace, 'failed', 'pipeline', substr(last.name, 10), template.name,
    last.queue, last.tags, template.id, last.id, '{}', last.finished_at, 1, last.finished_at, ''
from notices
join runs as template on template.id = notices.schedule_id
join runs as last on last.id = (
    select ended.id from runs as ended
    where ended.schedule_id = notices.schedule_id
        and ended.status in ('completed', 'failed', 'crashed')
        and not exists (select 1 from runs as later where later.retry_of = ended.id)
    order by ended.finished_at desc, ended.id desc limit 1
)
where last.kind = 'pipeline' and (last.status <> 'completed' or last.reason is not null)
    and not exists (select 1 from notifications as open
        where open.subject = template.id and open.is_open = 1);
