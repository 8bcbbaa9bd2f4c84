"""Clusters that nobody runs: what each rank of a mesh would say, by its coordinates."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

from devwidget.extras.ranks.records.cluster import Cluster, Rank, State
from devwidget.extras.ranks.records.merging import merge
from devwidget.extras.ranks.records.rank import (
    Axis,
    Collective,
    GroupProgress,
    Holding,
    LocalTensor,
    RankMemory,
    RankModel,
    RankModule,
    RankReport,
    silent_rank,
)
from devwidget.records.device import DeviceId
from devwidget.records.site import Site

NOW = 1_800_000_000.0
GIB = 2**30
STEP = Site("/home/ada/train.py", 41, "loss.backward()", "train")


def share(rows: int, parts: int, part: int) -> int:
    """Rows that one part holds when torch cuts them in chunks: the last ones may get none."""
    chunk = math.ceil(rows / parts)
    return max(0, min(rows - part * chunk, chunk))


def tensor(name: str, rows: int, columns: int, dp: tuple[int, int], tp: tuple[int, int]) -> LocalTensor:
    """A weight cut by `tp` and then by `dp` along its rows, each `(how many, which)`."""
    local = share(share(rows, *tp), *dp)
    words = [f"Shard(0, strided {tp[0]}) on dp" if tp[0] > 1 else "Shard(0) on dp"] if dp[0] > 1 else []
    words += ["Shard(0) on tp"] if tp[0] > 1 else []
    size = 4 * rows * columns
    return LocalTensor(
        name,
        "parameter",
        (rows, columns),
        (local, columns),
        "float32",
        size,
        4 * local * columns,
        "own",
        ", ".join(words),
        True,
    )


def model(layers: int, rows: int, dp: tuple[int, int] = (1, 0), tp: tuple[int, int] = (1, 0)) -> RankModel:
    """A stack of blocks with two linear layers each, cut along two axes."""
    modules, held = [RankModule("", "Decoder")], [0]
    for layer in range(layers):
        modules += [
            RankModule(
                f"blocks.{layer}", "Block", defined=Site("/home/ada/model.py", 12, "class Block(nn.Module):", "<module>")
            ),
            RankModule(f"blocks.{layer}.up", "Linear"),
            RankModule(f"blocks.{layer}.down", "Linear"),
        ]
        held += [0, 1, 2]
    holdings: tuple[Holding, ...] = (
        (),
        (tensor("weight", 4 * rows, rows, dp, tp), tensor("bias", 4 * rows, 1, dp, tp)),
        (tensor("weight", rows, 4 * rows, dp, tp),),
    )
    return RankModel(tuple(modules), holdings, tuple(held))


def report(
    number: int, world: int, of: RankModel, axes: Sequence[tuple[str, int]] = (), at: Sequence[int] = (), **more: Any
) -> RankReport:
    """What one rank says, eight of them on a machine."""
    device = DeviceId("cuda", number % 8)
    allocated = GIB + sum(each.local_bytes for place in of.held for each in of.holdings[place])
    said: dict[str, Any] = {
        "taken": NOW,
        "device": device,
        "model": of,
        "memory": (RankMemory(device, allocated, allocated + GIB // 4, allocated + GIB // 2),),
        "step": 120,
        "collective": Collective("all_reduce", 961, "default", tuple(range(min(world, 8))), 4096, finished=True),
        "stack": (STEP,),
    }
    return RankReport(
        number, world, f"node{number // 8}", 4000 + number,
        axes=tuple(Axis(*axis) for axis in axes), coordinates=tuple(at), **said | more,
    )  # fmt: skip


def reports(axes: Sequence[tuple[str, int]] = (("dp", 32), ("tp", 8)), layers: int = 12, rows: int = 1000) -> list[RankReport]:
    """What all ranks of a mesh say; axes other than `dp` and `tp` copy the model."""
    world = math.prod(size for _, size in axes)
    built: dict[tuple[Any, ...], RankModel] = {}
    found = []
    for number, at in enumerate(itertools.product(*(range(size) for _, size in axes))):
        places = {name: (size, place) for (name, size), place in zip(axes, at, strict=True)}
        cuts = places.get("dp", (1, 0)), places.get("tp", (1, 0))
        key = tuple(share(share(size, *cuts[1]), *cuts[0]) for size in (rows, 4 * rows))
        built.setdefault(key, model(layers, rows, *cuts))
        found.append(report(number, world, built[key], axes, at))
    return found


def silent(number: int, state: State, note: str = "", **known: Any) -> Rank:
    """A rank that gave no answer."""
    return Rank(state, dataclasses.replace(silent_rank(number), **known), note)


def cluster(said: Sequence[RankReport], **states: Rank) -> Cluster:
    """All of them answered, but for `r3=Rank(...)`."""
    heard = {each.rank: Rank("answered", each) for each in said}
    return merge((heard | {each.number: each for each in states.values()}).values(), asked=NOW + 0.25)


def with_change(said: Sequence[RankReport], number: int, change: Callable[[RankReport], RankReport]) -> list[RankReport]:
    """The same, but for one rank."""
    return [change(each) if each.rank == number else each for each in said]


def faulty() -> Cluster:
    """Eight ranks of which each has something of its own: one hangs, one is dead, one is a step behind."""
    said = reports((("dp", 4), ("tp", 2)), layers=3)
    waits = Collective("all_gather", 962, "dp", (0, 2, 4, 6), 8192, seconds=31.0, site=STEP)
    said = with_change(said, 2, lambda each: dataclasses.replace(each, collective=waits, stack=(STEP, Site("/lib/dist.py", 9))))
    said = with_change(said, 5, lambda each: dataclasses.replace(each, step=119))
    gone = silent(7, "dead", "its process has ended", host="node0", pid=4007)
    hung = Rank("hung", said[2], note="waits in `all_gather` number 962, which ranks 0, 4 and 6 have not begun")
    return cluster(said[:7], r2=hung, r7=gone)


LOADS = Site("/home/ada/data.py", 88, "shard = read_shard(self.path, index)", "__getitem__")


def held_up(nodes: int = 8, guilty: int = 37) -> list[Rank]:
    """Nodes of eight ranks along tp: one reads data, the others of its dp group wait for it, and all others for those."""
    size, found = 8 * nodes, []
    for said in reports((("dp", nodes), ("tp", 8)), rows=8 * size):
        dp, tp = tuple(range(said.rank % 8, size, 8)), tuple(range(said.rank // 8 * 8, said.rank // 8 * 8 + 8))
        late = said.rank % 8 == guilty % 8
        far = (961, 960) if late and said.rank != guilty else (960 + (not late),) * 2
        groups = GroupProgress("dp", *far, dp[0], nodes), GroupProgress("tp", 2400 + (not late), 2400, tp[0], 8)
        waits = Collective("all_gather", 961, "dp", dp, 2**23, seconds=43.0) if late else None
        waits = waits or Collective("all_reduce", 2401, "tp", tp, 2**21, seconds=42.0)
        own = {"collective": None, "stack": (LOADS,)} if said.rank == guilty else {"collective": waits}
        said = dataclasses.replace(said, groups=groups, **own)
        state: State = "answered" if said.rank == guilty else "hung"
        found.append(Rank(state, said, note="" if said.rank == guilty else "waits", hangs=said.rank != guilty))
    return found
