"""The docs are checked against the code."""
