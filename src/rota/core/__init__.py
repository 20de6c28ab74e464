"""Pure decisions: no IO, no clock, no logging, no SQL. Time, ids and chance are arguments."""
