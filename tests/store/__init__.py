"""One conformance suite for the store, passed by both databases."""
