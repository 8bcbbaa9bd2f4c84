"""Calls that failed: one family of faults per file, identified by the exception and by its fix."""
