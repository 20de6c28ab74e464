-- Every statement that writes `runs` opens all of its indexes, so one does the work of two. An attempt
-- belongs to one chain: "one successor of each attempt" holds within the chain. 0025 drops the old
-- ones; on PostgreSQL that comes after this one is built.
create unique index runs_attempts on runs (root_id, retry_of) where retry_of is not null;
