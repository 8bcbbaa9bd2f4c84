"""Recurrent layers without values, as the CPU computes them: the products of the whole input with its weights at once.

On meta C++ would multiply step by step. What comes first matters, since backward goes the other way.
Source: `FullLayer`, `PackedLayer` and the cells in `RNN.cpp`.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch.nn.functional import dropout, linear

Part = TypeVar("Part")
Hidden = tuple[torch.Tensor, ...]
Weights = Sequence[torch.Tensor]
Cell = Callable[[torch.Tensor, Hidden, Callable[[torch.Tensor], torch.Tensor], Weights], Hidden]
"""Is given one step of the products, the states, what multiplies a state with its weights, and weights that project it."""


def _lstm(given: torch.Tensor, hidden: Hidden, multiply: Callable[[torch.Tensor], torch.Tensor], project: Weights) -> Hidden:
    entering, forgetting, new, leaving = multiply(hidden[0]).add_(given).unsafe_chunk(4, 1)
    entering, forgetting, new, leaving = entering.sigmoid_(), forgetting.sigmoid_(), new.tanh_(), leaving.sigmoid_()
    cell = (forgetting * hidden[1]).add_(entering * new)
    out = leaving * cell.tanh()
    return (out @ project[0].t() if project else out), cell


def _gru(given: torch.Tensor, hidden: Hidden, multiply: Callable[[torch.Tensor], torch.Tensor], project: Weights) -> Hidden:
    inputs = given.unsafe_chunk(3, 1)
    states = multiply(hidden[0]).unsafe_chunk(3, 1)
    reset, update = states[0].add_(inputs[0]).sigmoid_(), states[1].add_(inputs[1]).sigmoid_()
    new = inputs[2].add(states[2].mul_(reset)).tanh_()
    return ((hidden[0] - new).mul_(update).add_(new),)


CELLS: dict[str, Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": lambda given, hidden, multiply, project: (multiply(hidden[0]).add_(given).tanh(),),
    "rnn_relu": lambda given, hidden, multiply, project: (multiply(hidden[0]).add_(given).relu(),),
}


def run(
    name: str, given: torch.Tensor, sizes: Sequence[int] | None, hidden: Hidden, weights: Weights,
    has_biases: bool, layers: int, share: float, train: bool, both_ways: bool, batch_first: bool = False,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """A recurrent layer of torch.

    Args:
        sizes: how many sequences of a packed input have each step; None for one that is not packed.
        hidden: the first states, of each layer and way.
        share: that is dropped between layers.

    Returns:
        The output and the last states.
    """
    given = given.transpose(0, 1) if batch_first else given
    ways = 2 if both_ways else 1
    count = len(weights) // (layers * ways)
    first = list(zip(*(part.unbind(0) for part in hidden), strict=True))
    last: list[Hidden] = []
    for layer in range(layers):
        outs: list[torch.Tensor] = []
        steps: list[torch.Tensor] = []
        alive: list[list[torch.Tensor]] = []
        for number in range(layer * ways, layer * ways + ways):
            own = weights[number * count : (number + 1) * count]
            out, states, each = _layer(CELLS[name], given, sizes, first[number], own, has_biases, number > layer * ways, steps)
            outs.append(out)
            last.append(states)
            alive.append(each)
        given = torch.cat(outs, -1) if both_ways else outs[0]
        del outs, steps, alive, out, each  # what C++ lets go when a layer is done
        if share and train and layer < layers - 1:
            given = dropout(given, share)
    ends = (torch.stack(parts, 0) for parts in zip(*last, strict=True))
    return given.transpose(0, 1) if batch_first else given, *ends


def _layer(
    cell: Cell, given: torch.Tensor, sizes: Sequence[int] | None, hidden: Hidden, weights: Weights,
    has_biases: bool, back: bool, steps: list[torch.Tensor],
) -> tuple[torch.Tensor, Hidden, list[torch.Tensor]]:  # fmt: skip
    """One layer in one direction; the states of sequences that have ended are put aside.

    Args:
        steps: of the other direction, which live until there are those of this one.

    Returns:
        The output, the last states, and what C++ holds until the layer is done: the output of each step.
    """
    bias, hidden_bias = weights[2:4] if has_biases else (None, None)
    multiply = functools.partial(linear, weight=weights[1], bias=hidden_bias)
    outs: list[torch.Tensor] = []
    ended: list[Hidden] = []
    states = hidden if sizes is None or not back else _between(hidden, 0, sizes[-1])
    products = linear(given, weights[0], bias)
    if sizes is None:
        steps[:] = products.unbind(0)
    for step in _in_turn(steps, back) if sizes is None else _packed_steps(products, sizes, back):
        count = len(states[0])
        if len(step) < count:
            ended.append(_between(states, len(step), count))
            states = _between(states, 0, len(step))
        elif len(step) > count:
            states = _joined([states, _between(hidden, count, len(step))])
        states = cell(step, states, multiply, weights[4 if has_biases else 2 :])
        outs.append(states[0])
    whole: Any = torch.stack if sizes is None else torch.cat
    last = states if sizes is None or back else _joined([states, *reversed(ended)])
    return whole(_in_turn(outs, back)), last, outs if sizes is None else []


def _packed_steps(products: torch.Tensor, sizes: Sequence[int], back: bool) -> Iterator[torch.Tensor]:
    """One step after the other, narrowed when it is needed."""
    for end, size in _in_turn(list(zip(itertools.accumulate(sizes), sizes, strict=True)), back):
        yield products.narrow(0, end - size, size)


def _in_turn(parts: list[Part], back: bool) -> list[Part]:
    return parts[::-1] if back else parts


def _between(hidden: Hidden, begin: int, end: int) -> Hidden:
    return tuple(part.narrow(0, begin, end - begin) for part in hidden)


def _joined(parts: Sequence[Hidden]) -> Hidden:
    return tuple(torch.cat(each) for each in zip(*parts, strict=True))
