"""What the memory of each GPU is used for during a recording."""
