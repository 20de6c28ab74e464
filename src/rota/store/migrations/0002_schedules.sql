-- Schedules: templates that make runs. Their columns are in 0001; here is what finding them needs.

-- What is still open of a schedule's runs, for its overlap policy, and who waits for a turn.
create index runs_schedule_open on runs (schedule_id, status, reason, due_at)
    where schedule_id is not null and (status = 'pending' or status = 'running'
        or status = 'sleeping' or status = 'waiting');
-- Schedules by name, for people and for deployments; a name is taken once.
create unique index runs_templates on runs (namespace, name) where kind = 'schedule';
