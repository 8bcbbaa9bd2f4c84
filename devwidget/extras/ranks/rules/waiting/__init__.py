"""Ranks that wait for others: in a collective, for one that has gone, or in step after step."""
