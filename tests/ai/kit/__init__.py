"""A model server on loopback, and a child that calls within limits."""
