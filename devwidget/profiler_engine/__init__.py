"""PROFILER ENGINE: torch's own profiler as a recorder: no mode, no patched operator, no hook; the program goes its own way."""
