"""Invokers against real counterparts on loopback."""
