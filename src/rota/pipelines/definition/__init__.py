"""pipeline.yaml: what it may say, how it is read and checked, and where it is found."""
