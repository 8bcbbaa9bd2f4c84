"""`verify_hops` over real models on two virtual GPUs: no sound copy is called wrong, and each damaged one is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_map

import devwidget
from tests import zoo
from tests.capture.test_copy_checks import Machine
from tests.gradients import tensors

SAMPLE = "gpt2"


class Flips:
    """Flips one bit of each copy, at a place that changes from copy to copy."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, out: torch.Tensor) -> None:
        if out.numel():
            data = out.view(torch.uint8)
            data[self.count % data.numel()] ^= 1
            self.count += 1


def compared(name: str, damage: Callable[[torch.Tensor], object] | None = None) -> tuple[int, int]:
    """Copies between GPUs that were compared, and those that had changed, as the model and its inputs move, and a pass runs."""
    made = [*zoo.iter_core(names=[name], on_error=lambda *_: None)]
    if not made:  # this version of transformers builds it otherwise
        return 0, 0
    model, args, kwargs = made[0][-3:]

    def to(device: str, values: Any) -> Any:
        return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, values)

    with devwidget.simulate(2):
        args, kwargs = to("cuda:0", (args, dict(kwargs)))
        model.to("cuda:0")
        machine = contextlib.nullcontext() if damage is None else Machine(damage)
        with machine, devwidget.record(verify_hops=True) as recording:
            model.to("cuda:1")
            args, kwargs = to("cuda:1", (args, kwargs))
            if damage is None:  # of a damaged model nothing is to be computed
                to("cuda:0", tensors(model(*args, **kwargs)))
    checks = recording.trace.copy_checks
    return sum(check.count for check in checks), sum(check.wrong for check in checks)


def test_sound_copies_of_a_model_are_not_reported_and_damaged_ones_are() -> None:
    count, wrong = compared(SAMPLE)
    assert count > 20
    assert wrong == 0
    flips = Flips()
    assert compared(SAMPLE, flips)[1] == flips.count > 20


@pytest.mark.fuzz
def test_no_sound_copy_of_the_zoo_is_reported_and_each_damaged_one_is() -> None:
    sound = {name: compared(name) for name in sorted(zoo.CORE)}
    flips = Flips()
    found = sum(compared(name, flips)[1] for name in sorted(zoo.CORE))
    ran = [name for name, (count, _) in sound.items() if count]
    print(f"{len(ran)} models, {sum(count for count, _ in sound.values())} sound copies: "
          f"{sum(wrong for _, wrong in sound.values())} reported; {flips.count} damaged: {found} found")  # fmt: skip
    assert len(ran) > 80
    assert [name for name, (_, wrong) in sound.items() if wrong] == []
    assert found == flips.count
