"""What could be changed of a step: each change is applied to the copy that a plan runs."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from devwidget.capture.tensors import named_tensors, registered_entries, walk_modules
from devwidget.extras.plan.fine_tuning import AdamW8bit
from devwidget.extras.plan.loops import Loop
from devwidget.extras.plan.watcher import virtual_gpu
from devwidget.records.schema.message import Message

LEAST_BLOCKS = 2
EIGHT_BIT = "bitsandbytes.optim.AdamW8bit(model.parameters())"


@dataclass(frozen=True)
class Changed:
    """How a step differs from what was asked.

    Attributes:
        prepare: is given the copy of the model before it is placed.
        asked: other arguments of `make_plan`.
        dtype: of the model's and the batch's floating numbers; None for those that they have.
        batch: samples; None for those that there are.
        length: tokens of each text; None for those that there are.
        is_inference: without labels and without gradients.
    """

    prepare: Callable[[nn.Module], object] = lambda model: None
    asked: dict[str, Any] = field(default_factory=dict)
    dtype: torch.dtype | None = None
    batch: int | None = None
    length: int | None = None
    is_inference: bool = False

    def cast_floats(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor of the batch in the dtype that is asked for."""
        if self.dtype is not None and tensor.is_floating_point():
            return tensor.to(self.dtype)
        return tensor


@dataclass(frozen=True)
class Option:
    """A change with its words; "" for the unchanged step."""

    what: str = ""
    changed: Changed = field(default_factory=Changed)
    code: str = ""
    cost: str = ""


def list_options(model: nn.Module, asked: dict[str, Any]) -> Iterator[Option]:
    """List what can be changed of a step, the cheapest first."""
    optimizer, loop = asked["optimizer"], asked["loop"]
    if optimizer is not None:
        yield from _list_optimizer_options(optimizer, loop)
        yield from _list_smaller_states(model, optimizer, asked["checkpointing"])
    if has_wide_weights(model):
        yield from _list_narrow_options(loop)
    if asked["gpus"] > 1:
        yield from _list_placement_options(asked["placement"])
    if optimizer is not None:
        sgd = Changed(asked={"optimizer": torch.optim.SGD})
        cost = Message("another optimizer changes training")
        yield Option(Message("SGD without momentum"), sgd, "torch.optim.SGD(model.parameters())", cost)


def _list_smaller_states(model: nn.Module, optimizer: Any, checkpointing: object) -> Iterator[Option]:
    eight, again = {"optimizer": AdamW8bit}, {"checkpointing": True}
    blocks = "" if checkpointing else next((path for path, _ in find_repeated_blocks(model)), "")
    if is_adam(optimizer):
        yield Option(Message("8-bit AdamW"), Changed(asked=eight), EIGHT_BIT, Message("eight bits of state"))
    if blocks:
        code = f"torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)  # each block of {blocks}"
        cost = Message("one more forward, about a third of the time")
        yield Option(Message("activation checkpointing"), Changed(asked=again), code, cost)
    if blocks and is_adam(optimizer):
        cost = Message("eight bits of state, and one more forward")
        yield Option(Message("checkpointing and 8-bit AdamW"), Changed(asked=again | eight), EIGHT_BIT, cost)


def is_adam(optimizer: Any) -> bool:
    """Whether an optimizer, or its class, is Adam or AdamW."""
    return issubclass(class_of_optimizer(optimizer), torch.optim.Adam | torch.optim.AdamW)


def class_of_optimizer(optimizer: Any) -> Any:
    """The class of an optimizer, which may be given itself."""
    if isinstance(optimizer, type):
        return optimizer
    return type(optimizer)


def has_wide_weights(model: nn.Module) -> bool:
    """Whether there are weights that half precision would make smaller."""
    return any(tensor.dtype in (torch.float32, torch.float64) for _, tensor in named_tensors(model, "_parameters"))


def _list_narrow_options(loop: Loop) -> Iterator[Option]:
    if loop.autocast is None and not loop.is_own:
        changed = Changed(asked={"loop": replace(loop, autocast=torch.bfloat16)})
        code = f'with torch.autocast("{virtual_gpu(0).type}", torch.bfloat16):'
        yield Option(Message("autocast to bfloat16"), changed, code, Message("computation in eight bits of precision"))
    cost = Message("weights in eight bits of precision, too")
    yield Option(Message("weights in bfloat16"), Changed(dtype=torch.bfloat16), "model.to(torch.bfloat16)", cost)


def _list_optimizer_options(optimizer: Any, loop: Loop) -> Iterator[Option]:
    kind = class_of_optimizer(optimizer)
    known = inspect.signature(kind.zero_grad).parameters.get("set_to_none")
    keeps = known is not None and known.default is False and not loop.zero_grad
    if (keeps or loop.zero_grad == "zero") and not loop.is_own:
        changed = Changed(asked={"loop": replace(loop, zero_grad="none")})
        yield Option(Message("gradients set to none"), changed, "optimizer.zero_grad(set_to_none=True)", Message("nothing"))
    if "foreach" in inspect.signature(kind).parameters:
        changed = Changed(asked={"optimizer": change_optimizer(optimizer, foreach=False)})
        code = f"{kind.__name__}(..., foreach=False)"
        yield Option(Message("one parameter after the other"), changed, code, Message("a slower step"))


def _list_placement_options(placement: Any) -> Iterator[Option]:
    for other, code in (("data parallel", "nn.DataParallel(model)"), ("auto", 'device_map="auto"')):
        if placement != other:
            changed = Changed(asked={"placement": other})
            yield Option(
                Message("placement: {placement}", placement=other), changed, code, Message("time for moves between GPUs")
            )


def settings_of(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Return the settings that the class of an optimizer takes."""
    known = inspect.signature(type(optimizer)).parameters
    return {name: value for name, value in optimizer.defaults.items() if name in known}


def take_partial(optimizer: Any) -> Any:
    """Return `partial(AdamW, foreach=False)` as a class of its own, which has these settings; return others unchanged."""
    if isinstance(optimizer, functools.partial) and isinstance(optimizer.func, type) and not optimizer.args:
        return change_optimizer(optimizer.func, **optimizer.keywords)
    return optimizer


def change_optimizer(optimizer: Any, **settings: Any) -> Any:
    """Return the same optimizer with other settings."""
    kind = class_of_optimizer(optimizer)

    def init_with_settings(self: Any, *args: Any, **kwargs: Any) -> None:
        kind.__init__(self, *args, **{**kwargs, **settings})

    init_with_settings.__signature__ = inspect.signature(kind.__init__)  # type: ignore[attr-defined]
    changed: Any = type(kind.__name__, (kind,), {"__init__": init_with_settings})
    if isinstance(optimizer, type):
        return changed
    same = object.__new__(changed)
    same.__dict__.update(optimizer.__dict__)
    same.__dict__["param_groups"] = [{**group, **settings} for group in optimizer.param_groups]
    return same


def find_repeated_blocks(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Find the blocks of a model, each with its list: modules of one class, with parameters, next to each other."""
    for path, module in walk_modules(model):
        if isinstance(module, nn.ModuleList | nn.Sequential):
            children = [child for _, child in registered_entries(module, "_modules")]
            alike = len({type(child) for child in children}) == 1 and len(children) >= LEAST_BLOCKS
            if alike and any(registered_entries(inner, "_modules") for inner in children):
                yield from ((f"model.{path}".rstrip("."), child) for child in children)


def recompute_blocks(model: nn.Module, reentrant: bool = False) -> None:
    """Have each block keep its inputs alone, and compute the rest again in backward."""
    # As transformers call it since 5.24, and before.
    names = "activation_checkpointing_enable", "gradient_checkpointing_enable"
    enable = next((found for name in names if callable(found := getattr(model, name, None))), None)
    if enable is not None and getattr(model, "supports_gradient_checkpointing", False):
        enable({"use_reentrant": reentrant})
        return
    for _, block in find_repeated_blocks(model):
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=reentrant)


def prepare_checkpointing(changed: Changed, asked: dict[str, Any]) -> Changed:
    """Return the changes of a copy, with the checkpointing that was asked for."""
    if not asked["checkpointing"]:
        return changed

    def prepare(copied: nn.Module) -> None:
        changed.prepare(copied)
        recompute_blocks(copied, asked["checkpointing"] == "reentrant")

    return replace(changed, prepare=prepare)


# Of a batch of another size whose samples differ.
_MOST_BYTES = 2**26


def resize_batch(value: torch.Tensor, dim: int, before: int, after: int) -> torch.Tensor:
    """A tensor of the batch with another size, made of its samples; return others unchanged.

    A large one is its first sample again and again, which takes no memory here.
    """
    if value.dim() <= dim or value.shape[dim] != before:
        return value
    if value.nbytes // before * after > _MOST_BYTES:
        return value.narrow(dim, 0, 1).expand(*value.shape[:dim], after, *value.shape[dim + 1 :])
    return value.index_select(dim, torch.arange(after, device=value.device) % before)


def find_batch_size(tensors: list[torch.Tensor], dim: int) -> int | None:
    """Return the first size that tensors of a batch share, or the second of whole numbers; None if none do."""
    if dim > 0:
        tensors = [tensor for tensor in tensors if not (tensor.is_floating_point() or tensor.is_complex())]
    sizes = [tensor.shape[dim] for tensor in tensors if tensor.dim() > dim]
    return max(sizes, key=lambda size: (sizes.count(size), -sizes.index(size)), default=None)
