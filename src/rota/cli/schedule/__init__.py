"""`rota schedule` and `rota next`: commands and their rendering."""
