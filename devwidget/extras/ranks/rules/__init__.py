"""What only many ranks together can show."""
