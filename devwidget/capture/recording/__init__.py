"""What one recording remembers: its events, where tensors were created, transfers, and which module is running where."""
