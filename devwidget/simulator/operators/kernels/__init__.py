"""Kernels that differ: those that only one of GPU and CPU has, and those that add up in any order."""
