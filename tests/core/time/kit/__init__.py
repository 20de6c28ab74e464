"""The oracle and the random expressions that recurrence is tested against."""
