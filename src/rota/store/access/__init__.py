"""Tokens, sessions, login links and the audit: their rows."""
