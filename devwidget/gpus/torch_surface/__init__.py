"""Parts of torch besides tensors that must know virtual GPUs: autocast, autograd, threads, compilation, imports."""
