"""The virtual machine: its GPUs, which storage lives where, how many bytes it takes, and CUDA's errors."""
