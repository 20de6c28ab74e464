"""Pipelines: batches, filter rules, replies, templates."""
