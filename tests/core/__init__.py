"""Is the decision right? Tables of cases and properties of the pure core."""
