"""Read saved files: only records of the right types and sizes are returned."""
