-- The steps that hold threads of the worker although they timed out, as JSON; null if none does.
alter table workers add column held_threads text;
