"""Workflows on virtual time: what is remembered, what waits, what fails, on both databases."""
