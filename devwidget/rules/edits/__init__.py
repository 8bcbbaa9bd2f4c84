"""Repairs: edits of the lines of the user, written by their syntax trees."""
