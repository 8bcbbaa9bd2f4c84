"""What is kept of the running simulation, for all of the simulator to read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devwidget.gpus.state import Ledger


class Values:
    """What is done about the values of tensors: here each has its own. A part for tensors without values does otherwise.

    Attributes:
        mode: the class of that of each thread, in place of the ordinary one; None for that.
    """

    mode: type[Any] | None = None

    def call_operator(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator."""
        return func(*args, **kwargs)

    def call_for_shape(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator of whose result nobody knows the values."""
        return func(*args, **kwargs)

    def call_factory(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], on_meta: bool) -> Any:
        """Run a factory for the device that stands for all others; `on_meta` if the user asked for meta."""
        return func(*args, **kwargs)

    def read_values(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor that has the values of another one, which may be itself."""
        return tensor

    def read_numbers(self, data: Any) -> Any:
        """Return nested lists with Python numbers in place of tensors whose memory nobody can read."""
        return data

    def list_numbers(self, given: Any, what: str) -> Any:
        """Return what a function in C++ can read, which is called `what` in errors."""
        return given

    def check_known(self, tensor: torch.Tensor, what: str) -> None:
        """Refuse `what` if it needs values that nobody knows."""

    def strip_values(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the tensor as operators take it."""
        return tensor

    def forget_values(self, tree: Any) -> None:
        """Take note that something unknown was written to these tensors."""

    def copy_known(self, source: torch.UntypedStorage, copy: torch.UntypedStorage) -> None:
        """Have the copy of a storage know what the other one knows."""

    def run_attention(self, *args: Any, **kwargs: Any) -> Any:
        """Return the result of `scaled_dot_product_attention`; None for what torch does itself."""
        return None

    def run_recurrent(
        self, original: Any, multiply: Any, given: Any, sizes: Any, hidden: Any, weights: Any, *rest: Any, **kwargs: Any
    ) -> Any:
        """Run a recurrent layer.

        Args:
            original: torch's own function.
            multiply: stands for `linear` in a layer that is made of other operators.
            given: what goes in.
            sizes: of the steps of a packed input, one tensor; nothing for one that is not packed.
            hidden: the first state.
            weights: of all layers.
            rest: of the arguments, with `kwargs`.
        """
        return original(given, *sizes, hidden, weights, *rest, **kwargs)


class SimulationState:
    """The state of the running simulation.

    Attributes:
        ledger: of bytes.
        is_running: whether there is one: what was imported in one, such as `torch.device`, means torch's own afterwards.
        compute: False if tensors have no values.
        values: what is done about these.
        on_guess: called when a program reads what was guessed; None where nothing is.
    """

    ledger = Ledger(())
    is_running = False
    compute = True
    values = Values()
    on_guess: Callable[[], None] | None = None
