"""Rota's tests. A package, so that no other `tests` on the path can be in for it."""
