"""meta: `simulate(compute=False)`, where operators run on meta tensors, and the few values that are known all the same."""
