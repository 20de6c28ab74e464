-- Open runs that no other index holds: those that wait for a person, and those that sleep until
-- something wakes them. Few, and what people ask for first; found without reading what is over.
-- Two conditions, each a chain of `or`: SQLite proves them one by one.
create index runs_resting on runs (namespace, status, kind, reason)
    where (status = 'waiting' or status = 'sleeping')
        and (status = 'waiting' or available_at is null);
