"""WATCHING: a whole training run by hooks alone, and now and then a step that is recorded."""
