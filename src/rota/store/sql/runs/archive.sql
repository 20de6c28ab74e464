-- Chains of the archive.

-- name: archivable_attempts
select {run columns} from runs
where id {in roots} or (root_id {in roots} and retry_of is not null)
order by root_id, coalesce(segment_id, root_id), attempt, id

-- name: put_archive
insert into archive (month, root_id, namespace, finished_at, body)
select item.month, item.root_id, item.namespace, item.finished_at, item.body
{from items: month text, root_id text, namespace text, finished_at int, body text}
where true
on conflict do nothing

-- name: archived_chain
select month, body from archive
where namespace = :namespace and root_id >= :prefix and root_id < :beyond
order by root_id
limit 2

-- name: archived_month
select month from archive where root_id = :root_id and namespace = :namespace

-- name: archive_months
select month, count(*) from archive group by month order by month

-- name: first_of_month
select 1 from archive where month = :month limit 1

-- name: delete_month
delete from archive where month = :month
