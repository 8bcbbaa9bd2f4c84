"""Kinds of accelerators: what tells one from another, and CUDA."""
