"""Recurrence against a brute-force oracle, and its descriptions."""
