"""Watched runs as parts, figures and data frames."""
