"""Pipelines: steps, dependencies and provider limits."""
