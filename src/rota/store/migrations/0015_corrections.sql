-- A payload that was published while a run had reserved the event waits in `correction`: the run's
-- own payload stays as it is. `revision` counts the changes of the payload, so that a run reserves
-- exactly what it has seen.
alter table events add column revision {int} not null default 0;
alter table events add column correction {text};
