"""Measures Rota against a hand-written limit on the same database, in the same durability."""
