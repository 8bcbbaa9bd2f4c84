"""cards: the rules by which CUDA's caching allocator takes the memory of a named card, hands it out and keeps it."""
