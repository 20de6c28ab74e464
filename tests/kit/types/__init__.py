"""What type checkers accept and refuse of the public API."""
