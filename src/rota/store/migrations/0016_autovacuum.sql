-- Every run is updated twice, and each update changes an index. With the server's default, a fifth of
-- the table may be dead before it is vacuumed; on a large table that comes too late.
{postgres}alter table runs set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);
{postgres}alter table events set (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
