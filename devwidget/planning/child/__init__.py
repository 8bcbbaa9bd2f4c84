"""A plan in a process of its own, where virtual GPUs cannot begin in this one."""
