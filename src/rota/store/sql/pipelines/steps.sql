-- Pipelines: the steps of a chain in pages, by the order of their keys.

-- name: steps_page
select {step columns} from steps
where root_id = :root_id and key > :after and key < :until
order by key limit :limit

-- name: keys_page
select key, position, status, run_attempt from steps
where root_id = :root_id and key > :after and key < :until
order by key limit :limit

-- name: move_to_queue
update runs set queue = :queue
where (id = :root_id or (root_id = :root_id and retry_of is not null))
    and (status = 'pending' or status = 'sleeping')

-- name: put_correction
-- By a person, without a claim: the run may have ended.
insert into steps (root_id, key, position, kind, status, attempt, run_attempt, output, started_at,
    finished_at)
values (:root_id, :key, 0, 'usage', 'completed', 1, 1, :output, 0, :now)
on conflict (root_id, key) do update set output = excluded.output, finished_at = excluded.finished_at

-- name: put_models
insert into steps (root_id, key, position, kind, status, attempt, run_attempt, output, started_at,
    finished_at)
values (:root_id, :key, 0, 'models', 'completed', 1, 1, :output, 0, :now)
on conflict (root_id, key) do update set output = excluded.output, finished_at = excluded.finished_at
