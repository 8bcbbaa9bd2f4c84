"""Programs that hold virtual GPUs against what torch itself says of CUDA."""
