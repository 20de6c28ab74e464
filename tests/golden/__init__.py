"""What users see when they make a mistake, word for word."""
