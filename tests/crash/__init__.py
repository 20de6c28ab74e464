"""Proof by violence: processes that are killed, at every commit and under load."""
