-- Limits of AI providers, shared by all workers of a store.

-- name: lock_ai_limits
select state from ai_limits where namespace = :namespace and name = :name
{lock}

-- name: put_ai_limits
insert into ai_limits (namespace, name, state) values (:namespace, :name, :state)
on conflict do nothing

-- name: move_ai_limits
update ai_limits set state = :state where namespace = :namespace and name = :name

-- name: drop_ai_limits
delete from ai_limits where namespace = :namespace and name = :name
