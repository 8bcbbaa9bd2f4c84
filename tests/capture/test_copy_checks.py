"""`verify_hops`: copies between GPUs that are damaged on their way are found, and others are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.patching.mode_stack import DispatchMode, redispatch
from devwidget.capture.recording.copy_checks import checksum_tensor
from devwidget.records.trace import Trace

Damage = Callable[[torch.Tensor], object]


class Machine(DispatchMode):
    """One whose copies from cuda:0 to cuda:1 arrive damaged."""

    def __init__(self, damage: Damage) -> None:
        self._damage = damage

    def __torch_dispatch__(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        out = redispatch(func, args, kwargs)
        before = {"aten::_to_copy": 0, "aten::copy_": 1}.get(func._schema.name)
        if before is not None and (str(args[before].device), str(out.device)) == ("cuda:0", "cuda:1"):
            self._damage(out.view(-1))
        return out


class Halves(nn.Module):
    """Half of it on each GPU; the way is `.to`, a cast, or a copy into a buffer."""

    def __init__(self, way: str = "to") -> None:
        super().__init__()
        self.first, self.second, self._way = nn.Linear(6, 4).to("cuda:0"), nn.Linear(4, 4).to("cuda:1"), way
        self.register_buffer("place", torch.zeros(3, 4, device="cuda:1"))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        if self._way == "copy_":
            h = self.place.clone().copy_(h)
        elif self._way == "cast":
            h = h.to("cuda:1", torch.float16).float()
        else:
            h = h.to("cuda:1")
        return self.second(h).to("cuda:0")


def traced(way: str = "to", damage: Damage | None = None) -> Trace:
    with devwidget.simulate(2):
        model, x = Halves(way), torch.randn(3, 6, device="cuda:0")
        if damage is None:
            return devwidget.trace(model, x, loss_fn=torch.sum, verify_hops=True)
        with Machine(damage):
            return devwidget.trace(model, x, loss_fn=torch.sum, verify_hops=True, verify=False)


def swap(out: torch.Tensor) -> None:
    out[:2] = out[:2].flip(0).clone()


DAMAGES: dict[str, Damage] = {
    "zeros": torch.Tensor.zero_,
    "one number": lambda out: out[-1:].add_(1),
    "two exchanged": swap,
    "the end is missing": lambda out: out[out.numel() // 2 :].zero_(),
}


@pytest.mark.parametrize("way", ["to", "cast", "copy_"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_copy_is_found_with_its_pair_and_its_line(way: str, damage: str) -> None:
    (finding,) = traced(way, DAMAGES[damage]).findings
    assert (finding.kind, finding.module) == ("corrupted-copy", "")
    assert "copies from cuda:0 to cuda:1 arrived corrupted" in finding.headline
    assert "h" in finding.fault.text


@pytest.mark.parametrize("way", ["to", "cast", "copy_"])
def test_sound_copies_are_counted_and_nothing_is_said_of_them(way: str) -> None:
    trace = traced(way)
    assert trace.findings == ()
    assert {(str(each.source), str(each.target)) for each in trace.copy_checks} >= {("cuda:0", "cuda:1"), ("cuda:1", "cuda:0")}
    assert not any(each.wrong for each in trace.copy_checks)
    assert "copies between GPUs compared at both ends" in str(trace)


def test_nothing_is_compared_unless_it_is_asked_for() -> None:
    with devwidget.simulate(2):
        assert devwidget.trace(Halves(), torch.randn(3, 6, device="cuda:0")).copy_checks == ()


def test_tensors_without_values_are_not_compared_and_it_says_so() -> None:
    with devwidget.simulate(2, compute=False), devwidget.record(verify_hops=True) as recording:
        torch.ones(3, device="cuda:0").to("cuda:1")
    assert recording.trace.copy_checks == ()
    assert any(words.startswith("copies between GPUs: ") for words in recording.trace.not_checked)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.bfloat16, torch.complex64])
def test_the_checksum_of_equal_bytes_is_equal_whatever_the_type_and_the_strides(dtype: torch.dtype) -> None:
    values = torch.arange(12).reshape(3, 4).to(dtype)
    assert checksum_tensor(values) == checksum_tensor(values.t().contiguous().t()) != checksum_tensor(values.roll(1))
    assert checksum_tensor(values[:0]) == 0


def test_a_checksum_sees_the_place_of_a_byte_beyond_the_first_chunk() -> None:
    large = torch.zeros(3 << 20, dtype=torch.uint8)
    sums = []
    for place in (0, 1, 1 << 20, (3 << 20) - 1):
        changed = large.clone()
        changed[place] = 1
        sums.append(checksum_tensor(changed))
    assert len({checksum_tensor(large), *sums}) == 5
