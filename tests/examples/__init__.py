"""The examples, run end to end."""
