"""Stateful property tests: may a run ever leave the table?"""
