"""Workflows: registered Python functions with recorded steps."""
