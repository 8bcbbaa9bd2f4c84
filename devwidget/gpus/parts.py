"""Places for the parts of virtual GPUs that extras provide; the core works without them.

A part fills its places when it is imported, and all are imported when the first simulation begins. No operator asks here: how
one runs is in its schema, which is read once, and what is done about values in the state of the simulation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from devwidget import extras
from devwidget.gpus.card_models import CardModel
from devwidget.gpus.patching import Patches, replacing
from devwidget.gpus.state import Account, Simulation, Values
from devwidget.gpus.virtual_machine import VirtualMachine

Install = Callable[[Patches, VirtualMachine], None]


@dataclass(slots=True)
class Parts:
    """What the parts of this installation have given.

    Attributes:
        open_card: opens the account of a named card.
        unknown_values: what is done where tensors have no values.
        installs: put into each simulation what the core does not, after it.
        special: namespace of operators -> what runs one of them.
        take_apart: namespace of operators -> what returns a function that runs one as several others.
        kernels: name of an operator that the CPU lacks -> its kernel.
        connects_processes: whether process groups work.
    """

    open_card: Callable[[CardModel], Account] | None = None
    unknown_values: Values | None = None
    installs: list[Install] = field(default_factory=list)
    special: dict[str, Callable[..., Any]] = field(default_factory=dict)
    take_apart: dict[str, Callable[..., Any]] = field(default_factory=dict)
    kernels: dict[str, Callable[..., Any]] = field(default_factory=dict)
    connects_processes: bool = False


PARTS = Parts()


def open_state(machine: VirtualMachine) -> Simulation:
    """Import the parts of this installation, which fill their places; refuse a machine for which one is missing."""
    extras.load_all("gpus")
    state = Simulation(is_running=True, capacities=machine.memory_bytes, compute=machine.compute)
    card, open_card = machine.card, PARTS.open_card
    if card is not None:
        if open_card is None:
            raise extras.lacks_extra("simulate(card=...)")
        state.open_account = lambda capacity: open_card(card)
    if not machine.compute:
        if PARTS.unknown_values is None:
            raise extras.lacks_extra("simulate(compute=False)")
        state.values = PARTS.unknown_values
    return state


def install_parts(patches: Patches, machine: VirtualMachine) -> None:
    """Install what parts install; without the one that connects processes, refuse process groups, which would wait for ever."""
    for install in PARTS.installs:
        install(patches, machine)
    if not PARTS.connects_processes and torch.distributed.is_available():
        for owner in (torch.distributed, torch.distributed.distributed_c10d):
            patches.wrap(owner, "init_process_group", _refuse_group)


@replacing
def _refuse_group(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    raise extras.lacks_extra("torch.distributed.init_process_group")
