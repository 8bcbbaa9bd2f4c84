"""The only code that reads live modules and tensors."""
