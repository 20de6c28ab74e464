-- Lists of runs, newest first. Each source reads one index in the order of ids, or an index that
-- holds few rows, and looks at a bounded number of entries. Other conditions are compared after
-- that bound, so that no filter makes a statement read more.

-- name: fitting
{fits seen} and seen.id < :before and seen.id >= :first
order by seen.id desc limit :limit

-- name: filtered_with_error
select {filter columns}, {query error_of_run} as error

-- name: newest
from runs
where runs.id < :before and runs.id >= :first
order by runs.id desc limit :window

-- name: ids_newest
select seen.id from (select {filter columns} {query newest}) as seen where {query fitting}

-- name: end_of_newest
select count(*), min(seen.id) from (select runs.id {query newest}) as seen

-- name: unsuccessful
from runs
where runs.namespace = :namespace and runs.status = :status and runs.finished_at is not null
    and runs.status <> 'completed' and runs.id < :before and runs.id >= :first
order by runs.id desc limit :window

-- name: ids_unsuccessful
select seen.id from ({query filtered_with_error} {query unsuccessful}) as seen
where (:error = '' or substr(seen.error, 1, length(:error)) = :error) and {query fitting}

-- name: end_of_unsuccessful
select count(*), min(seen.id) from (select runs.id {query unsuccessful}) as seen

-- name: of_schedule
-- If there are not too many to sort: the index is in the order of occurrences.
from runs
where runs.schedule_id = :schedule_id and runs.schedule_id is not null
order by runs.due_at limit :window

-- name: ids_of_schedule
select seen.id from (select {filter columns} {query of_schedule}) as seen where {query fitting}

-- name: size_of_schedule
select count(*) from (select 1 as one {query of_schedule}) as seen

-- name: of_name
-- Lists of an automation or a pipeline: an index of all names would cost every start a tenth.
from runs
where runs.namespace = :namespace and runs.name = :name
    and runs.kind <> 'workflow' and runs.kind <> 'schedule' and runs.id < :before and runs.id >= :first
order by runs.id desc limit :window

-- name: ids_of_name
select seen.id from (select {filter columns} {query of_name}) as seen where {query fitting}

-- name: end_of_name
select count(*), min(seen.id) from (select runs.id {query of_name}) as seen

-- name: names_of_kinds
-- The names of automations and pipelines that have runs, by a loose scan.
with recursive names (name) as (
    select min(name) from runs
    where namespace = :namespace and kind <> 'workflow' and kind <> 'schedule'
    union all
    select (select min(runs.name) from runs where runs.namespace = :namespace
        and runs.kind <> 'workflow' and runs.kind <> 'schedule' and runs.name > names.name)
    from names where names.name is not null
)
select name from names where name is not null limit :limit

-- name: names_with_external_ids
-- By a loose scan over the index of external ids.
with recursive names (name) as (
    select min(name) from runs where namespace = :namespace and external_id is not null
    union all
    select (select min(runs.name) from runs where runs.namespace = :namespace
        and runs.external_id is not null and runs.name > names.name)
    from names where names.name is not null
)
select name from names where name is not null

-- name: ids_called
-- By external id alone: one lookup for each name that has external ids.
select seen.id from (
    select {filter columns}
    from ({query names_with_external_ids}) as names
    join runs on runs.namespace = :namespace and runs.name = names.name
        and runs.external_id = :external_id and runs.external_id is not null
) as seen where {query fitting}

-- name: ids_beginning
-- By the beginning of an id or of an external id, however old the run: a range of an index each.
select seen.id from (
    select * from (
        select {filter columns} from runs
        where :id_part <> '' and runs.id >= :id_part and runs.id < :id_beyond
        order by runs.id desc limit :window
    ) as by_id
    union
    select * from (
        select {filter columns}
        from ({query names_with_external_ids}) as names
        join runs on runs.namespace = :namespace and runs.name = names.name
            and runs.external_id >= :search and runs.external_id < :beyond
            and runs.external_id is not null
        limit :window
    ) as called
) as seen where {query fitting}

-- name: ids_of_chain
select seen.id from (
    select {filter columns} from runs
    where runs.id = :root_id or (runs.root_id = :root_id and runs.retry_of is not null)
) as seen where {query fitting}

-- name: pending
-- Open runs, if there are not too many to sort. The order of each index makes the planner take it.
from runs
where runs.namespace = :namespace and runs.status = 'pending'
order by runs.queue, runs.priority desc, runs.available_at, runs.id limit :window

-- name: ids_pending
select seen.id from (select {filter columns} {query pending}) as seen where {query fitting}

-- name: size_pending
select count(*) from (select 1 as one {query pending}) as seen

-- name: running
from runs
where runs.namespace = :namespace and runs.status = 'running'
order by runs.queue, runs.lease_until limit :window

-- name: ids_running
select seen.id from (select {filter columns} {query running}) as seen where {query fitting}

-- name: size_running
select count(*) from (select 1 as one {query running}) as seen

-- name: sleeping_timed
from runs
where runs.namespace = :namespace and runs.status = 'sleeping' and runs.available_at is not null
order by runs.available_at limit :window

-- name: sleeping_untimed
from runs
where runs.namespace = :namespace and runs.status = 'sleeping' and runs.available_at is null
order by runs.kind, runs.reason limit :window

-- name: ids_sleeping
-- Those that a time wakes, and those that something else wakes.
select seen.id from (
    select * from (select {filter columns} {query sleeping_timed}) as timed
    union all
    select * from (select {filter columns} {query sleeping_untimed}) as untimed
) as seen where {query fitting}

-- name: size_sleeping
select count(*) from (
    select * from (select 1 as one {query sleeping_timed}) as timed
    union all
    select * from (select 1 as one {query sleeping_untimed}) as untimed
) as seen

-- name: waiting
from runs
where runs.namespace = :namespace and runs.status = 'waiting'
order by runs.kind, runs.reason limit :window

-- name: ids_waiting
select seen.id from ({query filtered_with_error} {query waiting}) as seen
where (:error = '' or substr(seen.error, 1, length(:error)) = :error) and {query fitting}

-- name: size_waiting
select count(*) from (select 1 as one {query waiting}) as seen

-- name: runs_by_id
select {run columns} from runs where id {in ids} order by id desc
