"""`rota run`."""
