"""allocator: the rules by which CUDA's caching allocator takes memory from a GPU, hands it out and keeps it."""
