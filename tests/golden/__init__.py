"""Messages for users who make a mistake, word for word."""
