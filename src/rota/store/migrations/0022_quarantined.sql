-- "Put aside" is called "quarantined", as in notifications. Few rows change: the schedules that could
-- not be read. Skipped occurrences keep the old word; `explain/skipped.py` knows both.
update runs set reason = 'quarantined: ' || substr(reason, 12)
where status = 'paused' and reason like 'put aside: %';
