-- Lists of runs. Each index holds only a part: what did not succeed, and runs of pipelines and
-- automations. A workflow that is started and completes is in none of them. On a large PostgreSQL
-- table they are built while others write.
create index runs_unsuccessful on runs (namespace, status, id)
    where finished_at is not null and status <> 'completed';
create index runs_by_name on runs (namespace, name, id)
    where kind <> 'workflow' and kind <> 'schedule';
