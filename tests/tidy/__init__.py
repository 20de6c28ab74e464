"""The house rules, as tests: a rule that does not run is not a rule."""
