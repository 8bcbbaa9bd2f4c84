"""The number of virtual GPUs, and their card or memory, parsed from the arguments of the user."""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from devwidget.gpus.card_models import CardModel, find_card
from devwidget.records.device import SIMULATE_VARIABLE
from devwidget.records.errors import SimulationError, nearest
from devwidget.records.schema.message import Message, listed

_UNITS = {"": 1, "b": 1}
_UNITS |= {prefix + "b": 1000**power for power, prefix in enumerate("kmgt", 1)}
_UNITS |= {prefix + "ib": 1024**power for power, prefix in enumerate("kmgt", 1)}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?b?)\s*", re.IGNORECASE)
UNLIMITED = 1 << 60
"""Bytes that no program asks for."""
MOST_GPUS = 128
"""torch keeps a device index in a signed byte."""


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """The virtual GPUs of one simulation.

    Attributes:
        memory_bytes: capacity of each GPU, in bytes.
        compute: False if tensors carry no values (they live on meta).
        card: the kind of card that all of them are, whose memory is kept as CUDA's caching allocator keeps it; None for GPUs
            with a capacity and nothing else.
    """

    memory_bytes: tuple[int, ...]
    compute: bool
    card: CardModel | None = None

    @property
    def gpus(self) -> int:
        """The number of virtual GPUs."""
        return len(self.memory_bytes)

    def describe(self) -> Message:
        """Describe number and size, or number and card."""
        sizes = sorted({f"{size / 2**30:.3g} GiB" for size in self.memory_bytes if size < UNLIMITED})
        each = listed(sizes) if sizes else Message("any size")
        if self.card is not None:
            each = self.card.name
        if self.compute:
            return Message("{count} of {each}", count=self.gpus, each=each)
        return Message("{count} of {each} without values", count=self.gpus, each=each)


def parse_cluster(gpus: object, memory: object, compute: object, *, card: object = None) -> VirtualMachine:
    """Check the arguments of `simulate`; the GPUs have the memory of the card, if one is named."""
    if isinstance(gpus, bool) or not isinstance(gpus, int) or not 0 < gpus <= MOST_GPUS:
        raise SimulationError(
            Message("cannot simulate {given} GPUs", given=_show_value(gpus)),
            why=Message("`gpus` is a whole number from 1 to {most}", most=MOST_GPUS),
            instead="devwidget.simulate(gpus=2)",
        )
    if not isinstance(compute, bool):
        raise SimulationError(
            Message("`compute` is True or False, not {compute}", compute=repr(compute)),
            instead="devwidget.simulate(compute=False)",
        )
    if (memory is None) == (card is None):
        neither, both = Message("neither `memory` nor `card` is given"), Message("both `memory` and `card` are given")
        instead = Message('memory="24GiB", or card="A100-80GB"')
        raise SimulationError(neither if card is None else both, why=Message("a card has its own memory"), instead=instead)
    if card is None:
        return VirtualMachine(_memory_of_each(memory, gpus), compute)
    found = find_card(card)
    return VirtualMachine((found.memory_bytes,) * gpus, compute, found)


def _show_value(given: object) -> str:
    """Python refuses to write numbers of thousands of digits."""
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
    """Return the bytes of `"16GiB"`, `"80 GB"` or a whole number; raise a `SimulationError` for any other."""
    found: float | None = None
    if isinstance(size, int) and not isinstance(size, bool):
        found = size
    elif isinstance(size, str) and (match := _SIZE.fullmatch(size)):
        factor = _UNITS.get(match[2].lower())
        found = None if factor is None else float(match[1]) * factor
    if found is None or not SMALLEST <= found <= UNLIMITED:
        raise SimulationError(
            Message("{given} is not a memory size", given=_show_value(size)),
            why=Message("a size is a number of bytes from {least} to an exbibyte, or a number with a unit", least=SMALLEST),
            instead=f'memory="{size}GiB"' if isinstance(size, int) and 0 < size < SMALLEST else 'memory="16GiB"',
        )
    return int(found)


SMALLEST = 512
"""Bytes: one block of CUDA's allocator. A smaller number was probably intended with a unit."""


# The same as the value of an environment variable, which hands virtual GPUs to child processes.
_GIB = 1 << 30


def write_cluster(cluster: VirtualMachine) -> str:
    """`gpus=2,memory=16GiB`, from which `read_cluster` makes an equal one."""
    fields = {"gpus": str(cluster.gpus)}
    if cluster.card is not None:
        fields["card"] = cluster.card.name
    else:
        sizes = [str(size) if size % _GIB else f"{size // _GIB}GiB" for size in cluster.memory_bytes]
        fields["memory"] = sizes[0] if len(set(sizes)) == 1 else ":".join(sizes)
    if not cluster.compute:
        fields["compute"] = "False"
    return ",".join(f"{name}={value}" for name, value in fields.items())


def read_cluster(text: str) -> VirtualMachine:
    """Return what the variable says; a number alone is that of GPUs."""
    given = dict(_read_field(part) for part in (f"gpus={text}" if text.strip().isdigit() else text).split(","))
    if "memory" not in given and "card" not in given:
        given["memory"] = "16GiB"
    return parse_cluster(given.get("gpus", 2), given.get("memory"), given.get("compute", True), card=given.get("card"))


def _read_field(part: str) -> tuple[str, object]:
    name, equals, value = (each.strip() for each in part.partition("="))
    if name not in _READERS or not equals:
        raise SimulationError(
            Message(
                "{variable} has no field {given}{hint}",
                variable=SIMULATE_VARIABLE,
                given=repr(part),
                hint=nearest(name, _READERS),
            ),
            why=Message("its fields are {known}", known=", ".join(_READERS)),
            instead=f'{SIMULATE_VARIABLE}="gpus=2,memory=16GiB"',
        )
    return name, _READERS[name](value)


def _read_number(value: str) -> object:
    # Anything else is refused later, in the same words as for `simulate`.
    return int(value) if value.isdecimal() else value


def _read_sizes(value: str) -> object:
    sizes = [_read_number(size.strip()) for size in value.split(":")]
    return sizes if len(sizes) > 1 else sizes[0]


_READERS: dict[str, Callable[[str], object]] = {
    "gpus": _read_number,
    "memory": _read_sizes,
    "card": str,
    "compute": lambda value: {"True": True, "False": False}.get(value.capitalize(), value),
}
