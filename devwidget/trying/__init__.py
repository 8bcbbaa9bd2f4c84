"""Run a step again with the edited code in place, to verify fixes."""
