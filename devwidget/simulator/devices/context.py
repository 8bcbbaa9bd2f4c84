"""The context of the program on its GPUs, which a kernel that stops at an assertion takes with it, as CUDA's does."""

from __future__ import annotations

import os

from devwidget.simulator.devices import cuda_errors


class Context:
    """What has become of it; that of all GPUs, because CUDA has the process begun anew.

    Attributes:
        has_stopped: a kernel has stopped, of which whoever waits for a GPU is told.
        is_lost: somebody was told: nothing is answered any more.
    """

    has_stopped = False
    is_lost = False


def renew_context() -> None:
    """Begin with one that works."""
    Context.has_stopped = Context.is_lost = False


def stop_kernel() -> None:
    """A kernel stops, which its own call does not wait for.

    Raises:
        torch.AcceleratorError: if it does, because the user has asked for that.
    """
    Context.has_stopped = True
    if _is_blocking():
        wait_for_kernels()


def wait_for_kernels(*_: object) -> None:
    """Wait for all that a GPU was told to do: the first call that is told of a kernel that has stopped.

    Raises:
        torch.AcceleratorError: if one has.
    """
    if Context.has_stopped:
        Context.is_lost = True
        check_context()


def check_context() -> None:
    """Refuse what is asked of a context that is lost.

    Raises:
        torch.AcceleratorError: if it is.
    """
    if Context.is_lost:
        raise cuda_errors.assertion_triggered(not _is_blocking())


def _is_blocking() -> bool:
    return os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
