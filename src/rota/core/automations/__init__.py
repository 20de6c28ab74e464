"""Automations: records, graph, phases, planner and status text. Pure."""
