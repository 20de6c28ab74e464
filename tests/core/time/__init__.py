"""Recurrence against a brute-force oracle, and the words it is told in."""
