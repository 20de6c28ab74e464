"""Runs: lifecycle, failures, retries, limits, ids."""
