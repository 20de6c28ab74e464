"""The HTTP surface: API, live events and dashboard, over one client.

Handlers know nothing of a web framework: `adapter` is the only file that imports one.
"""
