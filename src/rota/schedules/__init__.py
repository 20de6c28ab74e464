"""Schedules: definition, rota.toml, apply, preview, and the check of the ledger."""
