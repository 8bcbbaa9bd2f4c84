"""jobs: many processes with virtual GPUs, which of them have some, and how they talk to each other."""
