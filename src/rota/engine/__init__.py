"""The loops. Owns the clock, tasks and signals; decides nothing that `core` can decide."""
