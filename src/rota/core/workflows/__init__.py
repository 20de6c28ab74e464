"""Workflow code, read as text: the calls in it that would differ at a replay. Pure."""
