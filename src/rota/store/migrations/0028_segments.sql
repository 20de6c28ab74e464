-- The first run of the segment that a run belongs to. Null: the first segment of its chain.
alter table runs add column segment_id {key};
-- The oldest signal that is not taken is found at once, however many a chain has taken before.
create index signals_untaken on signals (root_id, name, taken_by, id);
drop index signals_by_run;
