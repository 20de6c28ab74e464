"""The client: one file per noun that people address."""
