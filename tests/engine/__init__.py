"""The loops of the engine on virtual time, on both databases."""
