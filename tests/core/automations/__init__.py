"""Automations: phases and planner."""
