"""What the source text of the user says: statements, call sites, expressions, and which line gave a tensor its value."""
