"""`rota pipeline` and `rota scheduler`."""
