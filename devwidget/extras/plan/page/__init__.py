"""A plan as a page: its answer, its step, what was asked of it, and how sure it is."""
