"""The command line: what people and scripts see of it."""
