"""Patches for places in torch that no mode or hook sees, active while a recording runs."""
