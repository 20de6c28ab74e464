"""Automations: deploy, handler runs, events, effects, commands and views."""
