"""Plans: the memory of a step on GPUs that are not here, and where blocks of a model go."""
