"""Pipelines: a folder with a pipeline.yaml, read, checked and taken apart. No engine here yet."""
