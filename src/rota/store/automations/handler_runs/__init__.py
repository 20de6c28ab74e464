"""Handler runs: begin, checkpoint, commit."""
