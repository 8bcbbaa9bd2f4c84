"""Every operator of torch's op_db with one tensor left on the CPU: the devices of the result, or the error."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

SAMPLES = 2
Outcome = dict[str, Any]


def outcome_of(call: Callable[[], Any]) -> Outcome:
    """The devices of the result, or the error with its first line."""
    try:
        result = call()
        if torch.cuda.is_available():
            torch.cuda.synchronize()
    except Exception as error:  # whatever it raises is what is compared
        return {"raises": type(error).__name__, "text": str(error).split("\n")[0][:300]}
    return {"devices": [str(leaf.device) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]}


def mixtures(sample: Any) -> Iterator[tuple[str, Any]]:
    """The arguments of a sample with one tensor after the other on the CPU, the others on the GPU; then the reverse."""
    leaves, spec = tree_flatten(((sample.input, *sample.args), dict(sample.kwargs)))
    tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    if len(tensors) < 2:
        return
    for stray in tensors:
        for home, other in (("cuda:0", "cpu"), ("cpu", "cuda:0")):
            moved = [
                leaf.detach().to(other if place == stray else home) if place in tensors else leaf
                for place, leaf in enumerate(leaves)
            ]
            yield f"argument {stray} on {other}", tree_unflatten(moved, spec)


def as_called(operator: Any) -> Callable[..., Any]:
    """The function as a program finds it now: the list was made before there were GPUs."""
    *path, name = operator.name.split(".")
    owner = functools.reduce(lambda found, each: getattr(found, each, None), path, torch)
    found: Callable[..., Any] = getattr(owner, name, None) or operator.op
    return found if getattr(operator.op, "__name__", "") == name else operator.op  # type: ignore[no-any-return]


def sweep(part: int, parts: int) -> dict[str, Outcome]:
    """Every so-manieth operator, in float32."""
    torch.manual_seed(0)
    found: dict[str, Outcome] = {}
    for operator in op_db[part::parts]:
        if torch.float32 not in operator.dtypes:
            continue
        name = f"{operator.name}.{operator.variant_test_name}".rstrip(".")
        with warnings.catch_warnings(), contextlib.suppress(Exception):  # some samples need packages that are not here
            warnings.simplefilter("ignore")
            for number, sample in enumerate(operator.sample_inputs("cpu", torch.float32)):
                if number >= SAMPLES:
                    break
                for what, (args, kwargs) in mixtures(sample):
                    found[f"{name}[{number}], {what}"] = outcome_of(lambda a=args, k=kwargs, o=operator: as_called(o)(*a, **k))
    return found


def compare(card: dict[str, Outcome], virtual: dict[str, Outcome]) -> dict[str, dict[str, tuple[Outcome, Outcome]]]:
    """What differs between both, by kind of difference."""
    differing: dict[str, dict[str, tuple[Outcome, Outcome]]] = {kind: {} for kind in TELLS}
    for name in card.keys() & virtual.keys():
        real, ours = card[name], virtual[name]
        kind = next((kind for kind, tells in TELLS.items() if tells(real) != tells(ours)), None)
        if kind:
            differing[kind][name] = real, ours
    return differing


TELLS: dict[str, Callable[[Outcome], Any]] = {
    "outcome": lambda each: "raises" in each,
    "devices": lambda each: each.get("devices"),
    "gives": lambda each: each.get("gives"),
    "type": lambda each: each.get("raises"),
    "text": lambda each: each.get("text"),
}
