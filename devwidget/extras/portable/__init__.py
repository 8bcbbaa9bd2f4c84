"""Lines that are written for CUDA, and their form for any accelerator."""
