"""`rota pipeline` and `rota scheduler`: commands and their rendering."""
