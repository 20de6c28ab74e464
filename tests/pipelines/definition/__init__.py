"""pipeline.yaml: reading, checks, schema."""
