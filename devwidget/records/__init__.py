"""Frozen dataclasses without live tensors, modules or widgets. They import only the standard library."""
