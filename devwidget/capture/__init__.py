"""READING: the only code that touches live modules and tensors."""
