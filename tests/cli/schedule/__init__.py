"""`rota schedule` and `rota next`."""
