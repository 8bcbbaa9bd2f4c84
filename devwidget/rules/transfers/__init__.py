"""Moves between devices that cost time or arrive too late."""
