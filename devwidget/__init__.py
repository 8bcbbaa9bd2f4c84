"""devwidget: see where every tensor of a PyTorch model lives, trace one batch, and fix what is on the wrong device."""

from devwidget._version import __version__

__all__ = ["__version__"]
