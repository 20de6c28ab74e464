"""Notifications about work of every kind."""
