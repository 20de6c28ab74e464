-- Outcomes of occurrences, for calendars and lists. All of these read the index of occurrences.

-- name: ledger_due
-- Occurrences before a position, newest first.
select {run columns} from runs
where schedule_id = :id and schedule_id is not null and due_at is not null and retry_of is null
    and due_at >= :from_at and due_at <= :to_at
    and due_at <= :before_at and (due_at < :before_at or id < :before_id)
order by due_at desc, id desc
limit :limit

-- name: ledger_by_hand
-- Runs by hand, which belong to no occurrence; they are few.
select {run columns} from runs
where schedule_id = :id and schedule_id is not null and due_at is null and retry_of is null
    and created_at >= :from_at and created_at <= :to_at
    and created_at <= :before_at and (created_at < :before_at or id < :before_id)
order by created_at desc, id desc
limit :limit

-- name: outcome_counts
-- Chains by quarter of an hour and outcome: every zone is a whole number of quarters away from UTC.
-- A row for many occurrences is left to `collapsed_between`.
select seen.quarter, seen.status, seen.reason, count(*) from (
    select runs.due_at - runs.due_at % 900000000 as quarter, runs.status, runs.reason from runs
    where runs.schedule_id = :id and runs.schedule_id is not null
        and runs.due_at >= :from_at and runs.due_at < :to_at
        and not (runs.status = 'skipped' and runs.output is not null)
        and {last attempt runs}
    order by runs.due_at desc limit :limit
) as seen
group by seen.quarter, seen.status, seen.reason

-- name: from_collapsed
-- Ranges of skipped occurrences that end after an instant. The index of occurrences knows which
-- rows are skipped or retries, so that the others are not read.
from runs
where runs.schedule_id = :id and runs.schedule_id is not null and runs.due_at >= :from_at
    and (case when runs.retry_of is null and runs.status <> 'skipped' then '' else runs.id end) > ''
    and runs.status = 'skipped' and runs.output is not null
order by runs.due_at limit :limit

-- name: collapsed_between
select runs.due_at, runs.reason, runs.output {query from_collapsed}

-- name: ledger_range
select {run columns} {query from_collapsed}

-- name: last_outcome_ids
-- The last attempts of the newest occurrences of each schedule, as one text.
select item.id as id, (
    select string_agg(newest.id, ' ') from (
        select runs.id from runs
        where runs.schedule_id = item.id and runs.schedule_id is not null
            and runs.due_at is not null
            and {last attempt runs}
        order by runs.due_at desc limit :last
    ) as newest) as ids
{from items: id text}

-- name: outcomes_by_id
select id, schedule_id, due_at, status, reason, started_at, finished_at from runs
where id {in ids}

-- name: schedules_named
select name, id from runs
where namespace = :namespace and name {in names} and kind = 'schedule'
order by name

-- name: recorded_from
-- Outcomes of a schedule's own firing at an instant and after it. A row for many occurrences has
-- its last one in `due_at`.
select due_at, case when status = 'skipped' then output end from runs
where schedule_id = :id and schedule_id is not null and due_at >= :at and retry_of is null
    and trigger = 'schedule'
order by due_at limit :limit

-- name: last_recorded
select due_at from runs
where schedule_id = :id and schedule_id is not null and due_at is not null and retry_of is null
    and trigger = 'schedule'
order by due_at desc limit 1
