"""Read an exception after it was raised: its frames, the values on the failing line, and the fault behind it."""
