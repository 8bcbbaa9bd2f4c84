"""The live model behind a panel: weakly referenced, read and traced on demand, its batch found in the notebook."""

from __future__ import annotations

import dataclasses
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch import nn

from devwidget.capture.memory.training_state import TrainingWatch
from devwidget.capture.object_fields import copy_items, is_a, items_of
from devwidget.capture.snapshot.optimizer_state import parameters_of
from devwidget.capture.source_code.call_sites import CLICK
from devwidget.capture.source_code.frames import reachable_objects
from devwidget.capture.source_code.stack import user_frame
from devwidget.capture.step.batch import (
    ITEM_TAKEN,
    TARGET_LEFT_OUT,
    Inputs,
    cut_batch,
    is_loader,
    make_arguments,
    moves_on,
    parameter_names,
    take_item,
    without_target,
)
from devwidget.capture.tensors import all_tensors, is_module, is_optimizer, is_parameter, is_tensor
from devwidget.capture.validation import refuse_model, refuse_optimizer
from devwidget.capture.walk import TooManyObjects
from devwidget.memory import Held
from devwidget.panel.actions import GIVEN, PanelActions, TraceRequest
from devwidget.records.errors import BatchError, DevwidgetError, error_text, nearest
from devwidget.records.finding import Fix
from devwidget.records.memory import DeviceMemory
from devwidget.records.schema.message import BELOW, Message, in_row
from devwidget.records.site import Site
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace

if TYPE_CHECKING:
    from devwidget.panel.panel import DeviceWidget


_MOST_CALLS = 4


class Engine(NamedTuple):
    """Functions for a panel: `snapshot(model, optimizer=)`, `trace(model, batch, ...)`, `try_fix(fix, model, batch, ...)`,
    `memory()`.
    """

    snapshot: Callable[..., Snapshot]
    trace: Callable[..., Trace]
    memory: Callable[[], tuple[DeviceMemory, ...]]
    try_fix: Callable[..., Fix] = lambda fix, *step, **options: fix.try_it()


def open_panel(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | None,
    given: dict[str, Any],
    expression: str,
    engine: Engine,
    opens: str = "",
) -> DeviceWidget:
    """Open the panel of a model; see `devwidget.show`. `given` has the keys batch, loss and target."""
    from devwidget.apply_fix import Application
    from devwidget.panel.panel import DeviceWidget

    refuse_model(model)
    refuse_optimizer(optimizer)
    live = Live(model, optimizer, given, expression, engine)
    actions = (
        live.take_snapshot,
        live.trace_step,
        live.find_batches,
        engine.memory,
        live.request,
        live.forget_batch,
        live.sum_training,
        live.try_fix,
        lambda fix: Application(fix, live.name),
        live.follow_name,
        live.can_repeat,
        lambda: live.name,
        lambda: live.model,
    )
    return DeviceWidget(PanelActions(*actions), opens)


MOST_LOOKED_AT = 16
"""Items of a container of the notebook that are looked at, to see whether it may be a batch."""
_USUAL = frozenset(("batch", "input", "inputs", "x"))
"""Words that people call a batch by."""
_CALL = "__devwidget_call__"
T = TypeVar("T")


class Live:
    """What a panel asks of a model, without keeping it alive.

    If a notebook variable refers to the model, the panel follows the variable: after a cell binds it to another model, that
    one is the model of the panel.

    Attributes:
        name: Notebook variable that refers to the model, "" if none does.
        request: The initial inputs.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | None,
        given: dict[str, Any],
        expression: str,
        engine: Engine,
    ) -> None:
        self._engine = engine
        self.name = name_of(model)
        self._has_cell_ended = False
        named = given | {"optimizer": optimizer}
        names = {key: name_of(value) for key, value in named.items()}
        if not self.name and not _is_held(model):
            named = named | {"model": model}
            names = names | {"model": ""}
        nameless = {key: value for key, value in named.items() if not names[key]}
        self._given = {key: value for key, value in nameless.items() if value is not None}
        self._attach(model)
        self._optimizer_name = names["optimizer"]
        self._named_optimizer = weakref.ref(optimizer) if optimizer is not None and names["optimizer"] else None
        self._training = TrainingWatch(lambda: self._model(), self._find_optimizer)
        names |= dict.fromkeys(self._given, GIVEN)
        self._item: tuple[Callable[[], Any], Any] | None = None
        self._has_taken = self._has_left_target = False
        self.request = TraceRequest(expression or names["batch"], names["loss"], names["target"], heal=True)

    def _attach(self, model: nn.Module) -> None:
        """Refer to a model. One without a name is never replaced."""
        given = self._given
        if self.name:
            self._model = weakref.ref(model)
        else:
            self._model = weakref.ref(model, lambda _: given.clear())

    def follow_name(self) -> bool:
        """Follow the name to the object that it is bound to now; called after each cell.

        In the cell that opened the panel the name may be that of a loop variable, so it is looked up again at the end.

        Returns:
            Whether the object is another one.
        """
        model, bound = self._model(), _find_module(self.name)
        if not self._has_cell_ended:
            self._has_cell_ended = True
            if model is not None and bound is not model:
                self.name = name_of(model)
                self._attach(model)
            return False
        if bound is None and self.name:
            self._forget_without_model(model)
        self._follow_optimizer()
        if bound is None or bound is model:
            return False
        self._given.pop("optimizer", None)  # it trains the model before, and keeps its parameters
        self._attach(bound)
        return True

    def _forget_without_model(self, model: nn.Module | None) -> None:
        if model is None:
            self._given.clear()

    def _follow_optimizer(self) -> None:
        found = _user_namespace().get(self._optimizer_name)
        if self._optimizer_name and is_optimizer(found):
            self._named_optimizer = weakref.ref(found)

    @property
    def model(self) -> nn.Module | None:
        """Return the model; None if it no longer exists."""
        return self._model()

    def take_snapshot(self) -> Snapshot | None:
        """Return a snapshot of the model; None if it no longer exists."""
        self._training.end_watch()
        model = self._model()
        if model is None:
            return None
        return self._engine.snapshot(model, optimizer=self._find_optimizer())

    def sum_training(self) -> Held:
        """Return the bytes of gradients and optimizer state in the running cell, for its bars."""
        return self._training.take_figures()

    def forget_batch(self) -> None:
        """Release the inputs without a name in the notebook, and the item of an iterator."""
        self._training.end_watch()
        self._given.clear()
        self._item = None

    def _find_optimizer(self) -> torch.optim.Optimizer | None:
        if self._named_optimizer is None:
            return self._given.get("optimizer")
        return self._named_optimizer()

    def trace_step(self, request: TraceRequest, progress: Callable[[str], None]) -> Trace:
        """Trace one batch with the inputs of the panel.

        Raises:
            DevwidgetError: If the model no longer exists, or an input cannot be evaluated.
        """
        self._has_taken = self._has_left_target = False
        trace = _call_as_cell(request, self._engine.trace, **self._make_step(request, progress), heal=request.heal)
        if self._has_taken:
            trace = dataclasses.replace(trace, not_restored=(*trace.not_restored, ITEM_TAKEN))
        if self._has_left_target:
            trace = dataclasses.replace(trace, not_checked=(*trace.not_checked, TARGET_LEFT_OUT))
        return trace

    def try_fix(self, request: TraceRequest, fix: Fix, progress: Callable[[str], None]) -> Fix:
        """Verify a fix on the step of the panel's inputs; raises as `trace`."""
        return _call_as_cell(request, self._engine.try_fix, fix, **self._make_step(request, progress))

    def _make_step(self, request: TraceRequest, progress: Callable[[str], None]) -> dict[str, Any]:
        model = self._model()
        if model is None:
            raise DevwidgetError(
                Message("the model no longer exists"),
                why=Message("it was deleted or replaced"),
                instead="devwidget.show(model)",
            )
        batch, loss = self._find_batch(request.batch), self._evaluate_field("loss", request.loss)
        target = self._evaluate_field("target", request.target)
        if request.samples:
            batch, target = cut_batch(batch, target, request.samples)
        if loss is None and not is_loader(batch):
            whole, batch = batch, without_target(model, batch)
            self._has_left_target = batch is not whole
        return {
            "model": model,
            "batch": batch,
            "loss_fn": loss,
            "target": target,
            "optimizer": self._find_optimizer(),
            "name": self.name,
            "progress": progress,
        }

    def _find_batch(self, expression: str) -> Any:
        """Return the batch. An iterator gives one item only, while the panel is shown."""
        batch = self._evaluate_field("batch", expression)
        if not moves_on(batch):
            return batch
        if self._item is None or self._item[0]() is not batch:
            self._item, self._has_taken = (_refer_weakly(batch), take_item(batch)), True
        return self._item[1]

    def can_repeat(self, request: TraceRequest) -> bool:
        """Return whether a trace needs no click: the fields are names, which call no code, and none of an iterator."""
        fields = [field.strip() for field in (request.batch, request.loss, request.target)]
        if fields[0] == GIVEN:
            batch = self._given.get("batch")
        else:
            batch = _user_namespace().get(fields[0])
        return not moves_on(batch) and all(field in ("", GIVEN) or field.isidentifier() for field in fields)

    def find_batches(self) -> tuple[str, ...]:
        """Return the notebook variables that may be a batch: first those that fit `forward`, likely ones first."""
        model = self._model()
        found = [(name, value) for name, value in user_variables() if _may_be_batch(value)]
        if model is None:
            fitting = []
        else:
            fitting = _likeliest_first(model, [name for name, value in found if _fits_forward(model, value)])
        return (*fitting, *(name for name, _ in found if name not in fitting))

    def _evaluate_field(self, field: str, expression: str) -> Any:
        """Evaluate an expression in the notebook; `GIVEN` refers to an argument of `show` without a name there."""
        if expression.strip() == GIVEN:
            if field not in self._given:
                why = Message("an object without a name in the notebook is kept only while its panel is shown")
                raise BatchError(
                    Message("the {field} passed to `show` no longer exists", field=Message(field)),
                    why=why,
                    instead=Message("assign it to a variable"),
                )
            return self._given[field]
        if expression.strip():
            return evaluate_in_notebook(expression, field)
        return None


def evaluate_in_notebook(expression: str, field: str) -> Any:
    """Evaluate an expression in the notebook's namespace.

    Raises:
        BatchError: If it raises or is not an expression.
    """
    namespace = _user_namespace()
    try:
        return eval(compile(expression.strip(), f"<{field}>", "eval"), dict(copy_items(namespace)))
    except Exception as error:
        if is_a(error, NameError):
            hint = nearest(expression.strip(), [name for name, _ in user_variables()])
        else:
            hint = ""
        said = error_text(error)
        raise BatchError(
            Message(
                "the {field} expression `{expression}` raised {error}{hint}",
                field=Message(field),
                expression=expression,
                error=said,
                hint=hint,
            ),
            why=_last_calls(error),
            instead=Message("use an expression such as `batch`, `(images, mask)` or `next(iter(loader))`"),
        ) from error


def _call_as_cell(request: TraceRequest, function: Callable[..., T], *args: Any, **step: Any) -> T:
    """Call a function as a cell would that says what the inputs of the panel say, so values are known by their names.

    A click has no line of the user above it. Where there is such a line, it has names of its own.
    """

    def call_step(*named: object) -> T:
        return function(*args, **step)

    if user_frame(sys._getframe()) is not None:
        return call_step()
    # The step is called from code compiled under a file name of its own: its frame is what the search for the user's line comes
    # to, and its locals are the names that stand in the panel's fields.
    namespace = _user_namespace()
    variables = dict(copy_items(namespace))
    fields = {"batch": request.batch, "target": request.target, "loss_fn": request.loss, "optimizer": GIVEN, "model": ""}
    for field, expression in fields.items():
        variables.setdefault(field if expression in ("", GIVEN) else expression, step[field])
    given = filter(str.isidentifier, (*fields.values(), step["name"]))
    named = [name for name in given if name in variables]
    result: T = eval(compile(f"{_CALL}({', '.join(named)})", CLICK, "eval"), namespace, variables | {_CALL: call_step})
    return result


def _refer_weakly(value: Any) -> Callable[[], Any]:
    """Return a weak reference if the class allows one."""
    try:
        return weakref.ref(value)
    except TypeError:
        return lambda: None


def _last_calls(error: Exception) -> str:
    """Return the last calls below the expression, innermost first: `train.py:12 in collate: torch.stack(rows)`."""
    calls = traceback.extract_tb(error.__traceback__)[2:]  # the first two are ours and the expression itself
    lines = [f"{Site(call.filename, call.lineno or 0)} in {call.name}: {call.line}" for call in reversed(calls)]
    shown, more = in_row(lines[:_MOST_CALLS], BELOW), len(lines) - _MOST_CALLS
    if more > 0:
        return Message("{calls}\n        and {count} outer calls", calls=shown, count=more)
    return shown


def _is_held(model: nn.Module) -> bool:
    """Return whether the user's code keeps a model alive; if not, it may be freed when devwidget's calls end."""
    try:
        return any(each is model for each in reachable_objects(sys._getframe(1)))
    except TooManyObjects:
        return False


def name_of(value: Any) -> str:
    """Return the notebook variable that refers to a value, "" if none does."""
    if value is None:
        return ""
    return next((name for name, other in user_variables() if other is value), "")


def _find_module(name: str) -> nn.Module | None:
    if name:
        value = _user_namespace().get(name)
    else:
        value = None
    if is_module(value):
        return value
    return None


def user_variables() -> Iterator[tuple[str, Any]]:
    """Return the variables that the user created, newest last. IPython's own start with an underscore."""
    hidden = {"In", "Out", "exit", "quit", "get_ipython", "open"}
    for name, value in copy_items(_user_namespace()):
        if type(name) is str and not name.startswith("_") and name not in hidden:
            yield name, value


def model_names() -> list[str]:
    """Return the names of the user's variables that refer to a model."""
    return [name for name, value in user_variables() if is_module(value)]


def find_optimizer(model: nn.Module) -> torch.optim.Optimizer | None:
    """Return the variable that trains a model, if there is exactly one."""
    mine = set(map(id, all_tensors(model)))
    optimizers = {id(value): value for _, value in user_variables() if is_optimizer(value)}
    found = [each for each in optimizers.values() if any(id(parameter) in mine for parameter in parameters_of(each))]
    if len(found) == 1:
        return found[0]
    return None


def _user_namespace() -> dict[str, Any]:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    namespace: dict[str, Any] = vars(sys.modules["__main__"]) if shell is None else shell.user_ns
    return namespace


def _may_be_batch(value: Any) -> bool:
    """Return whether a value is a tensor, a loader, or a built-in container of tensors.

    Other mappings (a shelf, a proxy, a lazy one) are not read before the user names them.
    """
    if is_tensor(value) or is_a(value, Inputs) or is_loader(value):
        return not is_parameter(value)
    if type(value) is list or type(value) is tuple:
        return any(map(is_tensor, value[:MOST_LOOKED_AT]))
    return any(is_tensor(part) for _, part in (items_of(value) or ())[:MOST_LOOKED_AT])


def _likeliest_first(model: nn.Module, names: list[str]) -> list[str]:
    """Sort names: first arguments of `forward`, then usual names of a batch, then the others."""
    wanted = parameter_names(model)

    def rank(name: str) -> int:
        if name in wanted:
            return 0
        if _USUAL.intersection(name.lower().split("_")):
            return 1
        return 2

    return sorted(names, key=rank)


def _fits_forward(model: nn.Module, value: Any) -> bool:
    if is_loader(value):
        return True
    items = items_of(value)
    try:
        make_arguments(model, without_target(model, value if items is None else dict(items)))
    except BatchError:
        return False
    return True
