"""What tells one kind of accelerator from another: its names, words, figures and lists, read by the rest of the simulator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from devwidget.records.device import AcceleratorKind


@dataclass(frozen=True, slots=True)
class Casts:
    """What autocast does with each operator, named as in torch's schemas; those in no list take float32.

    Attributes:
        lower: run in the fast dtype.
        promote: run in the widest dtype among their arguments.
        set_dtype: give float32, unless the caller names a dtype.
        refused: the ones that are not safe, with what torch says then.
    """

    lower: frozenset[str]
    promote: frozenset[str]
    set_dtype: frozenset[str]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(AcceleratorKind):
    """One kind of accelerator as the simulator needs it; `cuda.py` has the one that is shipped.

    Another one is such a record with other contents, for a device type that torch knows; it runs by
    `Simulation(parse_cluster(2, "16GiB", True, replace(CUDA, type="xpu", title="XPU", ...)))`.

    Attributes:
        title: as torch writes it in messages and in the names of dispatch keys, `CUDA`.
        number: its place in `c10::DeviceType`.
        version: of its software that torch would be built for.
        invalid_ordinal: the error for a device that does not exist.
        out_of_memory: the error for want of room, with `{requested}`, `{index}`, `{capacity}`, `{free}`, `{used}`, `{held}` and
            `{cached}`.
        properties: makes what `get_device_properties` returns of name, bytes of memory, UUID and number in the machine.
        answers: what further C functions of torch return, by their names behind `c_prefix`.
        casts: what autocast does.
    """

    title: str
    number: int
    version: str
    invalid_ordinal: str
    out_of_memory: str
    properties: Callable[..., object]
    answers: Mapping[str, object]
    casts: Casts

    @property
    def c_prefix(self) -> str:
        """How the names of its C functions begin, which a CPU build of torch lacks."""
        return f"_{self.type}_"

    @property
    def autocast_key(self) -> str:
        """The dispatch key of its autocast."""
        return "Autocast" + self.title
