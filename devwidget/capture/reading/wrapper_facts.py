"""What wraps a module: DataParallel, DDP, FSDP, compile, script, parametrizations, accelerate; read from plain attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from torch import nn

Note = Callable[[dict[str, Any]], str]


class Wrapping(NamedTuple):
    """A class of wrappers.

    Attributes:
        word: what a reader calls it.
        note: its settings, from the `__dict__` of the wrapper.
        hides: its plain attributes repeat the tensors of what it wraps, so they are not searched.
    """

    word: str
    note: Note
    hides: bool = True


def _nothing(own: dict[str, Any]) -> str:
    return ""


def _data_parallel(own: dict[str, Any]) -> str:
    if not own.get("device_ids"):
        return "no accelerator was there: it calls the module directly"
    kind = getattr(own.get("src_device_obj"), "type", "cuda")
    return f"device_ids {list(own['device_ids'])}, gathers on {kind}:{own.get('output_device')}"


def _distributed(own: dict[str, Any]) -> str:
    group: Any = own.get("process_group")
    ids = own.get("device_ids")
    ranks = f"rank {group.rank()} of {group.size()}" if hasattr(group, "rank") and hasattr(group, "size") else ""
    return ", ".join(part for part in (ranks, f"device_ids {list(ids)}" if ids else "") if part)


def _parametrized(own: dict[str, Any]) -> str:
    lists = own["_modules"].get("parametrizations")
    pairs = [(name, list(vars(steps)["_modules"].values())) for name, steps in vars(lists)["_modules"].items()] if lists else []
    return ", ".join(f"{name} through {' and '.join(type(step).__name__ for step in steps)}" for name, steps in pairs)


_WRAPPINGS = {
    "torch.nn.parallel.data_parallel.DataParallel": Wrapping("DataParallel", _data_parallel),
    "torch.nn.parallel.distributed.DistributedDataParallel": Wrapping("DistributedDataParallel", _distributed),
    "torch.distributed.fsdp.fully_sharded_data_parallel.FullyShardedDataParallel": Wrapping("FSDP", _nothing),
    "torch.distributed.fsdp.FSDPModule": Wrapping("FSDP2", _nothing, hides=False),
    "torch._dynamo.eval_frame.OptimizedModule": Wrapping("compiled", _nothing),
    "torch.jit._script.RecursiveScriptModule": Wrapping("scripted", _nothing),
    "torch.fx.graph_module.GraphModule": Wrapping("fx graph", _nothing, hides=False),
}
_PARAMETRIZED = Wrapping("parametrized", _parametrized, hides=False)
_QUANTIZED = Wrapping("quantized", _nothing, hides=False)
_PLAIN = Wrapping("", _nothing, hides=False)


def wrapping(kind: type) -> Wrapping:
    """How instances of a class wrap others; an empty word for ordinary modules."""
    for base in kind.__mro__:
        found = _WRAPPINGS.get(f"{base.__module__}.{base.__qualname__}")
        if found is not None:
            return found
    if kind.__module__.startswith("torch.ao.nn.quantized"):
        return _QUANTIZED
    return _PARAMETRIZED if is_parametrized(kind) else _PLAIN


def is_parametrized(kind: type) -> bool:
    """True for the class that `torch.nn.utils.parametrize` made from another one."""
    return kind.__name__.startswith("Parametrized") and len(kind.__bases__) == 1 and kind.__module__ == _module_of_parametrize()


def _module_of_parametrize() -> str:
    return nn.utils.parametrize.__name__


def written_class(kind: type) -> type:
    """The class as somebody wrote it, where torch put a generated one in its place (FSDP2, parametrizations)."""
    generated = is_parametrized(kind) or any(base.__name__ == "FSDPModule" for base in kind.__bases__)
    if not generated:
        return kind
    return next(base for base in kind.__bases__ if base.__name__ != "FSDPModule")


def class_name(module: nn.Module) -> str:
    """Name of the class as it was written, also for scripted modules."""
    script = vars(module).get("_c")
    if script is not None and hasattr(script, "_type"):
        return str(script._type().name())
    return written_class(type(module)).__name__


def hooks_of(own: dict[str, Any]) -> list[Any]:
    """The accelerate hooks of a module, a sequence of them opened."""
    hook = own["_hf_hook"]
    return list(vars(hook).get("hooks", [hook]))


def hook_note(hook: Any) -> str:
    """Where an accelerate hook runs its module, and whether the weights are away in between."""
    device = vars(hook).get("execution_device")
    runs = "" if device is None else f"runs on {f'cuda:{device}' if isinstance(device, int) else device}"
    return ", ".join(part for part in (runs, "offloaded in between" if vars(hook).get("offload") else "") if part)


def counted(values: Iterable[object]) -> str:
    """`cuda:0 x12, cpu x3`."""
    counts: dict[str, int] = {}
    for value in map(str, values):
        counts[value] = counts.get(value, 0) + 1
    return ", ".join(f"{name} x{count}" for name, count in counts.items())
