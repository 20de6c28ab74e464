"""Notifications: receivers of schedules, records of what happened, and rules about them."""
