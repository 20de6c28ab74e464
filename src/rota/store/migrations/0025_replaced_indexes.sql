-- `runs_attempts` of 0024 does their work.
drop index runs_chain;
drop index runs_retry_once;
