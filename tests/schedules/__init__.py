"""Schedules as people use them: an app on virtual time, on both databases."""
