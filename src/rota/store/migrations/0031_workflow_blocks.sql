-- The workflows that have blocked the event loop of the worker, as JSON; null if none has.
alter table workers add column workflow_blocks text;
