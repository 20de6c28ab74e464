"""Tools against real counterparts on loopback."""
