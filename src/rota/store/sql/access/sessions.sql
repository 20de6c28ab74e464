-- Logins of browsers, and the links that begin one.

-- name: put_session
insert into sessions (digest, namespace, token_id, name, role, created_at, seen_at, expires_at)
values (:digest, :namespace, :token_id, :name, :role, :created_at, :seen_at, :expires_at)

-- name: get_session
-- Only what is still valid, and only while its token is.
select {session columns} from sessions left join api_tokens on api_tokens.id = sessions.token_id
where sessions.digest = :digest and sessions.namespace = :namespace
    and sessions.expires_at > :now and sessions.seen_at > :idle_since
    and (sessions.token_id is null
        or (api_tokens.revoked_at is null and coalesce(api_tokens.expires_at, :now + 1) > :now))

-- name: touch_session
update sessions set seen_at = :now where digest = :digest and seen_at < :before

-- name: delete_session
delete from sessions where digest = :digest and namespace = :namespace
returning name

-- name: put_login_link
insert into login_links (digest, namespace, name, role, expires_at)
values (:digest, :namespace, :name, :role, :expires_at)

-- name: take_login_link
-- The first request that uses it deletes it, whether or not it is still valid.
delete from login_links where digest = :digest and namespace = :namespace
returning name, role, expires_at

-- name: forget_sessions
delete from sessions where namespace = :namespace and expires_at < :now

-- name: forget_login_links
delete from login_links where namespace = :namespace and expires_at < :now
