-- The switch that keeps a copy of a database from acting.

-- name: disarm
insert into disarmed (id, at, reason) values (1, :now, :reason)
on conflict (id) do nothing

-- name: arm
delete from disarmed where id = 1 returning at, reason

-- name: disarm_state
select at, reason from disarmed where id = 1
