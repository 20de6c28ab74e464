"""Tests of `rota.core.workflows`."""
