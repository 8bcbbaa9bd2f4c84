"""Rules that need several ranks."""
