"""What happens to each operator: the rule it follows on a GPU, and the labels of its results."""
