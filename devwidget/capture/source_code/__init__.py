"""Read the user's source: statements, call sites, expressions, and which line gave a tensor its value."""
