"""What the ranks of one job say, and what they are together."""
