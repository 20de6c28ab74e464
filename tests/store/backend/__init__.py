"""The two databases: drivers, queries, group commit, migrations."""
