"""Tensors and storages that say they are on a virtual GPU, and the functions that make and convert them."""
