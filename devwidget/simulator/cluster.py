"""How many virtual GPUs there are and how much memory each has, read from what the user wrote."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from devwidget.records.errors import SimulationError
from devwidget.records.schema.message import Message, listed
from devwidget.simulator.cards import Card, find_card

if TYPE_CHECKING:
    from devwidget.simulator.accelerators.accelerator import Accelerator

_UNITS = {"": 1, "b": 1}
_UNITS |= {prefix + "b": 1000**power for power, prefix in enumerate("kmgt", 1)}
_UNITS |= {prefix + "ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)
UNLIMITED = 1 << 60
"""Bytes that no program asks for."""
LONGEST = 40
"""Characters of a size, which a float holds for certain."""
MOST_GPUS = 128
"""torch keeps a device index in a signed byte."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The virtual GPUs of one simulation.

    Attributes:
        memory_bytes: capacity of each GPU, in bytes.
        compute: False if tensors carry no values (they live on meta).
        accelerator: the kind of accelerator that the GPUs are.
        card: the kind of card that all of them are, whose memory is kept as CUDA's caching allocator keeps it; None for GPUs
            with a capacity and nothing else.
    """

    memory_bytes: tuple[int, ...]
    compute: bool
    accelerator: Accelerator
    card: Card | None = None

    @property
    def gpus(self) -> int:
        """The number of virtual GPUs."""
        return len(self.memory_bytes)

    def __str__(self) -> str:
        return str(self.told())

    def told(self) -> Message:
        """How many of what size, or of which card."""
        sizes = sorted({f"{size / 2**30:.3g} GiB" for size in self.memory_bytes if size < UNLIMITED})
        each = self.card.name if self.card is not None else listed(sizes) if sizes else Message("any size")
        if self.compute:
            return Message("{count} of {each}", count=self.gpus, each=each)
        return Message("{count} of {each} without values", count=self.gpus, each=each)


def parse_cluster(
    gpus: object, memory: object, compute: object, accelerator: Accelerator | None = None, *, card: object = None
) -> Cluster:
    """Check what the user asked for; GPUs are CUDA's unless another accelerator is given, and those of a card if one is named.

    Raises:
        SimulationError: if a number or a size makes no sense.
    """
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus <= MOST_GPUS:
        raise SimulationError(
            Message("cannot simulate {given} GPUs", given=_shown(gpus)),
            why=Message("`gpus` is a whole number from 1 to {most}", most=MOST_GPUS),
            instead="devwidget.simulate(gpus=2)",
        )
    if not isinstance(compute, bool):
        raise SimulationError(
            Message("`compute` is True or False, not {compute}", compute=repr(compute)),
            instead="devwidget.simulate(compute=False)",
        )
    from devwidget.simulator.accelerators.cuda import CUDA  # late: `import devwidget` stays light

    if (memory is None) == (card is None):
        neither, both = Message("neither `memory` nor `card` is given"), Message("both `memory` and `card` are given")
        given = neither if card is None else both
        raise SimulationError(
            given, why=Message("a card has its own memory"), instead=Message('memory="24GiB", or card="A100-80GB"')
        )
    if card is None:
        return Cluster(_memory_of_each(memory, gpus), compute, accelerator or CUDA)
    found = find_card(card)
    return Cluster((found.memory_bytes,) * gpus, compute, accelerator or CUDA, found)


def _shown(given: object) -> str:
    """What the user wrote; Python refuses to write numbers of thousands of digits."""
    if isinstance(given, int) and abs(given) > UNLIMITED:
        return f"a number of {given.bit_length()} bits"
    return reprlib.repr(given)


def _memory_of_each(memory: object, gpus: int) -> tuple[int, ...]:
    if isinstance(memory, Sequence) and not isinstance(memory, str | bytes):
        if len(memory) != gpus:
            raise SimulationError(
                Message("{count} memory sizes for {gpus} GPUs", count=len(memory), gpus=gpus),
                why=Message("a sequence names one size per GPU"),
                instead=f"devwidget.simulate(gpus={gpus}, memory={['16GiB'] * gpus!r})",
            )
        return tuple(parse_bytes(size) for size in memory)
    return (parse_bytes(memory),) * gpus


def parse_bytes(size: object) -> int:
    """`"16GiB"`, `"80 GB"` or a whole number -> bytes.

    Raises:
        SimulationError: if that is no size above zero.
    """
    found: float | None = None
    if isinstance(size, int) and not isinstance(size, bool):
        found = size
    elif isinstance(size, str) and len(size) < LONGEST and (match := _SIZE.fullmatch(size)):
        factor = _UNITS.get(match[2].lower())
        found = None if factor is None else float(match[1]) * factor
    if found is None or not 1 <= found <= UNLIMITED:
        raise SimulationError(
            Message("{given} is no memory size", given=_shown(size)),
            why=Message("a size is a number of bytes from one to an exbibyte, or such a number with a unit"),
            instead='devwidget.simulate(memory="16GiB")',
        )
    return int(found)
