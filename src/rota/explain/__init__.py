"""Explanations: why a run, a schedule or an automation runs, waits or does not run."""
