"""Pure decisions: no IO, no clock, no logging, no SQL. Time, ids and random numbers are
arguments.
"""
