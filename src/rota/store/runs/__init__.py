"""Runs: start, claim, settle, recover; steps, history, retention and workers."""
