-- Whether an event of a batch that failed is taken alone: 0 no, 1 yes, 2 it was offered alone and
-- its consumer did not take it.
alter table events add column alone {int} not null default 0;
