"""Virtual GPUs on a machine that has none: real numbers, CUDA's behaviour."""
