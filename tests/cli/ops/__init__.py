"""`rota up`, `doctor`, `metrics`, `workers`."""
