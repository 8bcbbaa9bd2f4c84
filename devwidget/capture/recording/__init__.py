"""What one recording remembers: its events, births, transfers, and which module is running where."""
