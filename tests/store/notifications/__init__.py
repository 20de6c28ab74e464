"""Notifications in the store."""
