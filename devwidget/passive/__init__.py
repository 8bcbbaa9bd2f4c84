"""PASSIVE: torch's own profiler as a recorder. No mode, no patch of an operator, no hook: the program goes its own way."""
