-- The ledger of side effects.

-- name: mutations_of_chains
select {mutation columns} from mutations where root_id {in root_ids} order by id

-- name: mutations_of_runs
select {mutation columns} from mutations where run_id {in run_ids} order by id

-- name: put_mutation
insert into mutations (id, root_id, run_id, namespace, automation, handler, tool, safety, params,
    title, status, created_at, updated_at)
values (:id, :root_id, :run_id, :namespace, :automation, :handler, :tool, :safety, :params, :title,
    :status, :now, :now)
on conflict do nothing
returning {mutation columns}

-- name: move_mutation
update mutations
set status = :status, result = :result, error = :error, resolved_by = :resolved_by,
    reconcile_count = :reconcile_count, updated_at = :now
where id = :id and status {in sources}
returning id

-- name: adopt_mutation
update mutations set run_id = :run_id where root_id = :root_id and status <> 'failed'

-- name: approve_mutation
update mutations set approved_at = :now, updated_at = :now
where root_id = :root_id and status = 'proposed'
returning id
