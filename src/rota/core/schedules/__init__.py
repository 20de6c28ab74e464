"""Schedules: intent, policies and the decision to fire. Pure."""
