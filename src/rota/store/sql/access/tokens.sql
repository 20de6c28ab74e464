-- Tokens of the API.

-- name: put_token
insert into api_tokens (id, namespace, name, digest, role, created_at, expires_at)
values (:id, :namespace, :name, :digest, :role, :created_at, :expires_at)
on conflict do nothing
returning id

-- name: get_token
select digest, {token columns} from api_tokens where id = :id and namespace = :namespace

-- name: list_tokens
select {token columns} from api_tokens where namespace = :namespace order by created_at, id

-- name: note_token_use
update api_tokens set last_used_at = :now
where id = :id and (last_used_at is null or last_used_at < :before)

-- name: revoke_token
update api_tokens set revoked_at = :now
where namespace = :namespace and (id = :name or name = :name) and revoked_at is null
returning {token columns}

-- name: forget_tokens
delete from api_tokens where namespace = :namespace
    and (revoked_at < :before or expires_at < :before)
