"""What to change about a step, with its numbers; each advice only where it applies."""
