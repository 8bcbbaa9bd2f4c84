"""What makes training wrong without an error: gradients, optimizers, checkpoints, dtypes."""
