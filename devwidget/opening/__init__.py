"""OPENING: files that other tools wrote, as records."""
