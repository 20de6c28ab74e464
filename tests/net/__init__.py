"""Subprocesses and HTTP, shared by tools, AI and pipelines."""
