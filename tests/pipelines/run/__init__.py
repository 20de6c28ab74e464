"""Pipeline runs, stage by stage."""
