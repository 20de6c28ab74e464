"""Schedules: templates, firing, overlap and attempts."""
