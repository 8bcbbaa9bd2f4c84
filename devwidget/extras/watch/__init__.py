"""WATCHING: a whole training run with hooks, in which some steps are recorded."""
