-- PostgreSQL reads the checks of a table, and the conditions of its indexes, anew for every statement
-- that writes it, and of a lone start that was more than half the work. As one function, which it
-- reads once per connection, the rules of `runs` cost a third. They say what the checks of 0001 say.
{postgres}create function run_is_sound(status text, available_at bigint, lease_owner text,
{postgres}    lease_until bigint, finished_at bigint)
{postgres}returns boolean language plpgsql immutable as $$
{postgres}begin
{postgres}    return case
{postgres}        when status = 'running'
{postgres}            then lease_owner is not null and lease_until is not null and finished_at is null
{postgres}        when lease_owner is not null or lease_until is not null then false
{postgres}        when status in ('pending', 'scheduled')
{postgres}            then available_at is not null and finished_at is null
{postgres}        when status in ('sleeping', 'waiting', 'paused') then finished_at is null
{postgres}        when status in ('completed', 'failed', 'cancelled', 'crashed', 'skipped')
{postgres}            then finished_at is not null
{postgres}        else false
{postgres}    end;
{postgres}end $$;
{postgres}alter table runs drop constraint runs_status, drop constraint runs_finished,
{postgres}    drop constraint runs_leased, drop constraint runs_lease_whole, drop constraint runs_due,
{postgres}    add constraint runs_sound check (
{postgres}        run_is_sound(status, available_at, lease_owner, lease_until, finished_at));

-- Its keys are all different: to look for equal ones before a page is split is in vain.
{postgres}alter index runs_ready set (deduplicate_items = off);

-- What is open has not finished; that is shorter to say than its four states.
drop index runs_serial;
create unique index runs_serial on runs (namespace, serial_key)
    where serial_key is not null and finished_at is null;
drop index runs_schedule_open;
create index runs_schedule_open on runs (schedule_id, status, reason, due_at)
    where schedule_id is not null and finished_at is null;
drop index runs_limit_keys;
create index runs_limit_keys on runs (namespace, queue, limit_key, status, priority desc, available_at, id)
    where limit_key is not null and finished_at is null;
