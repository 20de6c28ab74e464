"""Notifications: what is worth one, who wants it, and how many messages it becomes."""
