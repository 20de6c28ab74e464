-- name: lock_roots
-- A sender to a chain and a reader in it take this lock first, so that neither can miss the other
-- between two attempts.
select id from runs where id {in roots} order by id
{lock}

-- name: poke_runs
-- Wake the open run of each chain: now if it waits for such a thing, at its next suspension if it
-- runs. One that sleeps for another reason (a delay, a back-off) looks when its time has come.
update runs
set wake_requested = case when wake_requested = 2 then 2 else 1 end,
    available_at = case when status = 'sleeping' then :now else available_at end,
    reason = case when status = 'sleeping' then null else reason end,
    status = case when status = 'sleeping' then 'pending' else status end
where (status = 'running'
        or (status = 'sleeping' and reason in ('signal', 'child', 'several')))
    and (id {in roots} or (root_id {in roots} and retry_of is not null))
returning id

-- name: wake_due
with due as (
    select id from runs
    where namespace = :namespace and status = 'sleeping' and available_at <= :now
    order by available_at
    limit :limit
    {skip_locked}
)
update runs set status = 'pending', reason = null
from due where runs.id = due.id and runs.status = 'sleeping'
returning runs.recoveries

-- name: next_due
select min(available_at) from runs
where namespace = :namespace and status = 'sleeping' and available_at is not null

-- name: waiting_claims
-- A run that has come to rest may still be running here: its outcome is about to be settled.
select id, claim_count from runs
where id {in ids} and status in ('sleeping', 'pending', 'running')
