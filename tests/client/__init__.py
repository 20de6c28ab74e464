"""The client: runs, metrics."""
