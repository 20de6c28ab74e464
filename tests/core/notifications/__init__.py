"""Decisions about notifications."""
