"""Virtual GPUs as the value of an environment variable, by which processes hand them on to those that they start."""

from __future__ import annotations

from collections.abc import Callable

from devwidget.gpus.virtual_machine import VirtualMachine, parse_cluster
from devwidget.records.device import SIMULATE_VARIABLE
from devwidget.records.errors import SimulationError, nearest
from devwidget.records.schema.message import Message

_GIB = 1 << 30
_EXAMPLE = f'{SIMULATE_VARIABLE}="gpus=2,memory=16GiB"'


def write_cluster(cluster: VirtualMachine) -> str:
    """`gpus=2,memory=16GiB`, from which `read_cluster` makes an equal one."""
    fields = {"gpus": str(cluster.gpus)}
    if cluster.card is not None:
        fields["card"] = cluster.card.name
    else:
        sizes = [_write_size(size) for size in cluster.memory_bytes]
        fields["memory"] = sizes[0] if len(set(sizes)) == 1 else ":".join(sizes)
    if not cluster.compute:
        fields["compute"] = "False"
    return ",".join(f"{name}={value}" for name, value in fields.items())


def _write_size(size: int) -> str:
    return str(size) if size % _GIB else f"{size // _GIB}GiB"


def read_cluster(text: str) -> VirtualMachine:
    """What the variable says; a number alone is that of GPUs.

    Raises:
        SimulationError: if it cannot be understood.
    """
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
            instead=_EXAMPLE,
        )
    return name, _READERS[name](value)


def _read_number(value: str) -> object:
    # What is no number is refused by who checks it, in the same words as for `simulate`.
    return int(value) if value.isdecimal() else value


def _read_sizes(value: str) -> object:
    sizes = [_read_number(size.strip()) for size in value.split(":")]
    return sizes if len(sizes) > 1 else sizes[0]


def _read_truth(value: str) -> object:
    return {"True": True, "False": False}.get(value.capitalize(), value)


_READERS: dict[str, Callable[[str], object]] = {
    "gpus": _read_number,
    "memory": _read_sizes,
    "card": str,
    "compute": _read_truth,
}
