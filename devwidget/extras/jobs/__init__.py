"""Jobs of many processes: which of them have virtual GPUs, and how those talk to each other."""
