"""`rota notification …`."""
