"""Workflows: registered Python functions whose steps are remembered."""
