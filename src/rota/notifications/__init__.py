"""Notifications: webhook, command and ping."""
