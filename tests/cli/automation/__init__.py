"""`rota automation`."""
