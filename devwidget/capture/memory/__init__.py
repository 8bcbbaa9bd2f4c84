"""What the memory of each GPU is used for, through a recording."""
