"""Running one step on a batch, and putting everything back."""
