-- Schedules: templates that make runs. Their columns are in 0001; here is what finding them needs.

-- The timer of schedules, and of pauses that end by themselves.
create index runs_scheduled on runs (namespace, available_at) where status = 'scheduled';
create index runs_pauses on runs (namespace, available_at)
    where status = 'paused' and available_at is not null;
-- What is still open of a schedule's runs, for its overlap policy.
create index runs_schedule_open on runs (schedule_id, due_at)
    where schedule_id is not null and (status = 'pending' or status = 'running'
        or status = 'sleeping' or status = 'waiting');
-- All runs of a schedule: its ledger, and the foreign key when it is deleted.
create index runs_by_schedule on runs (schedule_id, due_at) where schedule_id is not null;
-- Schedules by name, for people and for deployments.
create index runs_templates on runs (namespace, name)
    where (status = 'scheduled' or status = 'paused');
