-- PostgreSQL reads the checks of a table anew for every statement that writes it, and as chains of
-- comparisons those of `runs` are a tenth of what it costs to start one. Here each list is one
-- constant. They say what they said; SQLite keeps its chains, which are quicker there.

{postgres}alter table runs drop constraint runs_status, drop constraint runs_finished,
{postgres}    add constraint runs_status check (status = any ('{pending,running,completed,sleeping,failed,cancelled,crashed,waiting,scheduled,paused,skipped}'::text[])),
{postgres}    add constraint runs_finished check ((finished_at is not null) = (status = any ('{completed,failed,cancelled,crashed,skipped}'::text[])));
