"""Who may use the surfaces: tokens, roles, sessions, and the audit of what they did."""
