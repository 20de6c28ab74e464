-- Log lines of runs.

-- name: last_log_positions
select run_logs.run_id, run_logs.position, run_logs.size from run_logs
{, items: run_id text}
where run_logs.run_id = item.run_id and run_logs.position = (
    select max(newest.position) from run_logs as newest where newest.run_id = item.run_id)

-- name: put_log_lines
insert into run_logs (run_id, position, at, level, logger, message, size)
select item.run_id, item.position, item.at, item.level, item.logger, item.message, item.size
{from items: run_id text, position int, at int, level text, logger text, message text, size int}
where true
on conflict (run_id, position) do nothing

-- name: log_lines
select {log line columns} from run_logs
where run_id = :run_id and position > :after
order by position limit :limit

-- name: delete_log_lines
delete from run_logs where run_id in (
    select id from runs where id {in roots} or (root_id {in roots} and retry_of is not null))
