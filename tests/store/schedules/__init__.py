"""Schedules in the store."""
