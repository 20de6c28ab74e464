"""Runs: records, life cycle, failures, retries, limits, ids. Pure."""
