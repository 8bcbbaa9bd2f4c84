"""Settings of torch and of the process that a step may change."""
