"""Trying fixes: the edited code itself is put in place, and the step is run once more."""
