"""What produces responses: one protocol, and a module per kind of engine."""
