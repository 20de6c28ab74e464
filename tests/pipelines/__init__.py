"""Pipelines: their files, and the pure parts of running them."""
