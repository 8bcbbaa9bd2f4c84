"""A case: one tensor that a call was given in the wrong place, as the candidates see it."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.records.trace import Fault, Operand, Trace

_NOTHING_ELSE = Trace()


@dataclass(frozen=True, slots=True)
class Case:
    """What an edit must fix.

    Attributes:
        fault: the call that failed.
        stray: the tensor that is in the wrong place.
        literal: a device may be written by its name where no tensor on it is at hand: not in a block that runs on two.
        trace: in which it happened; empty where nothing else of it counts.
    """

    fault: Fault
    stray: Operand
    literal: bool
    trace: Trace = _NOTHING_ELSE

    @property
    def strays(self) -> list[Operand]:
        """All tensors of the call that are in the wrong place."""
        return [operand for operand in self.fault.operands if operand.stray]

    @property
    def at_hand(self) -> list[str]:
        """Variables near the call that are on the right device whenever it fails: a loop may run blocks on two devices."""
        names = list(self.fault.nearby.at_hand)
        for other in self.trace.faults:
            if other.site == self.fault.site and other.call == self.fault.call:
                names = [each for each in names if each in other.nearby.at_hand]
        return names

    @property
    def is_wanted_on_host(self) -> bool:
        """Whether the call needs it on the CPU."""
        return str(self.fault.target) == "cpu"

    @property
    def must_be_detached(self) -> bool:
        """Whether a move alone may lead to the next error: NumPy refuses a tensor that requires grad."""
        if self.fault.call not in ("numpy", "__array__"):
            return False
        return any(stray.requires_grad or not stray.dtype for stray in self.strays)  # without a dtype: it no longer exists

    @property
    def is_between_gpus(self) -> bool:
        """Whether it is on one GPU and needed on another."""
        target = self.fault.target
        return self.stray.device.is_accelerator and target is not None and target.is_accelerator
