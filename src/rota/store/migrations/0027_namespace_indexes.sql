-- Every heartbeat lists the workers of a namespace. PostgreSQL read the whole table for it. No
-- heartbeat changes these columns, so an update still writes no index.
create index workers_by_start on workers (namespace, started_at, id);
create index api_tokens_by_creation on api_tokens (namespace, created_at, id);
