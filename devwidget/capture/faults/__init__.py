"""Calls that failed: one family of faults per file, each told apart by its exception and by what cures it."""
