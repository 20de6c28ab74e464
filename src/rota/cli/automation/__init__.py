"""`rota automation`: commands and their rendering."""
