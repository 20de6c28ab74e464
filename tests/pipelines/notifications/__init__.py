"""Notifications about scheduled pipelines."""
