"""pipeline.yaml: its format, how it is read and checked, and where it is found."""
