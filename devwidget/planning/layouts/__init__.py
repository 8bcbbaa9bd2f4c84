"""Where the blocks of a model go: what each takes, the best split, and a plan of it."""
