-- Runs that are executed alone, because their workers died twice (core/runs/recovery). Every
-- heartbeat asks for one and nearly never finds one: the index holds nothing else.
create index runs_alone on runs (namespace, queue, priority desc, available_at, id)
    where status = 'pending' and recoveries >= 2;
