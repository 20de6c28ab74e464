"""`rota run`: commands and their rendering."""
