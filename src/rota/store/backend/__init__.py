"""The two databases: drivers, dialects, queries, batching and migrations."""
