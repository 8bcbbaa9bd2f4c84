"""The collectives of a recording."""
