"""HTTP and subprocesses, shared by tools, AI, notifications and pipelines."""
