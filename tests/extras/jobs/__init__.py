"""Jobs of several processes on virtual GPUs, held against gloo on the CPU."""
