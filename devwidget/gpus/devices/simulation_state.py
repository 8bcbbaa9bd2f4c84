"""What is kept of the running simulation, for all of the simulator to read."""

from __future__ import annotations

from collections.abc import Callable

from devwidget.gpus.devices.ledger import Ledger


class SimulationState:
    """The state of the running simulation.

    Attributes:
        ledger: of bytes.
        is_running: whether there is one: what was imported in one, such as `torch.device`, means torch's own afterwards.
        compute: False if tensors have no values.
        on_guess: called when a program reads what was guessed; None where nothing is.
    """

    ledger = Ledger(())
    is_running = False
    compute = True
    on_guess: Callable[[], None] | None = None
