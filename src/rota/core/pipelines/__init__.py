"""Pipelines: templates, filter rules, replies, batches and sampling. Pure."""
