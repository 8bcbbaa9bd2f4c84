"""Virtual GPUs on a machine that has none: real numbers, CUDA's behaviour."""

from devwidget.simulator.simulation import Simulation, active, memory, simulate

__all__ = ["Simulation", "active", "memory", "simulate"]
