"""Nodes that share no folder: one key, one relay each, and who asks them."""
