"""Pure decisions: no IO, clock, logging or SQL. Time, ids and random numbers are arguments."""
