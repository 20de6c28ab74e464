"""Runs in the store: start, claim, settle, steps, history, retention."""
