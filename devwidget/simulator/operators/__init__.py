"""What happens to each operator: the rule it follows on CUDA, and the labels of its results."""
