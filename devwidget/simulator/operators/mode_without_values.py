"""`compute=False`: the same labels on meta tensors, for models of any size, without values."""

from __future__ import annotations

from typing import Any

from devwidget.capture.patching.mode_stack import DispatchMode, EndedDispatchMode, EndedFunctionMode, FunctionMode
from devwidget.records.errors import message
from devwidget.simulator.devices import cuda_errors
from devwidget.simulator.devices.labels import inside
from devwidget.simulator.devices.simulation_state import SimulationState
from devwidget.simulator.operators import rule_table
from devwidget.simulator.operators.dispatch_mode import SCHEMAS, VirtualMode
from devwidget.simulator.without_values import call
from devwidget.simulator.without_values.written_indices import WrittenIndices


class ModeWithoutValues(VirtualMode):
    """Runs every operator on meta."""

    def __init__(self) -> None:
        self._indices: list[WrittenIndices] = []

    def __enter__(self) -> Any:
        self._indices.append(WrittenIndices())
        self._indices[-1].__enter__()
        return super().__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        if self._indices:
            self._indices[-1].leave()
            self._indices.pop()
        VirtualMode.__exit__(self, *exc_info)  # `super` asks for the class, which may have ended

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run one operator without values.

        Raises:
            SimulationError: if it needs them.
        """
        # Many meta kernels are Python that asks tensors for their device: they must see the real one.
        inside.depth += 1
        try:
            schema = SCHEMAS.get(func) or SCHEMAS.setdefault(func, rule_table.schema_of(func))
            if schema.passive:
                return call.call(func, args, kwargs)
            return VirtualMode.__torch_dispatch__(self, func, args, kwargs)  # as above
        except (RuntimeError, NotImplementedError) as error:
            if _is_about_values(error):
                raise cuda_errors.needs_values(f"`{func}`") from error
            raise
        finally:
            inside.depth -= 1


class _AtRest(DispatchMode):
    """The mode of a thread that has outlived its simulation."""

    __torch_dispatch__ = EndedDispatchMode.__torch_dispatch__


class _IndicesAtRest(FunctionMode):
    """Its other one."""

    __torch_function__ = EndedFunctionMode.__torch_function__


def rest(mode: VirtualMode) -> None:
    """The simulation is over: the mode of a thread that goes on does nothing."""
    if isinstance(mode, ModeWithoutValues):
        for each in mode._indices:
            each.__class__ = _IndicesAtRest  # type: ignore[assignment]
    mode.__class__ = _AtRest  # type: ignore[assignment]


def resume(mode: VirtualMode) -> None:
    """A simulation has begun: threads of an earlier one belong to it, unless only one of both has values."""
    indices: list[WrittenIndices] | None = vars(mode).get("_indices")
    if SimulationState.compute and indices is None:
        mode.__class__ = VirtualMode
    elif not SimulationState.compute and indices is not None:
        mode.__class__ = ModeWithoutValues
        for each in indices:
            each.__class__ = WrittenIndices


def new_mode() -> Any:
    """The mode of the running simulation, for one thread."""
    return VirtualMode() if SimulationState.compute else ModeWithoutValues()


def _is_about_values(error: Exception) -> bool:
    text = message(error).lower()
    rightful = ("expected device meta", "cannot copy out of meta")  # what CUDA says too, of tensors that the user put on meta
    return "meta" in text and not any(words in text for words in rightful)
