"""Schedules: the decision to fire."""
