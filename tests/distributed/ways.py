"""Four ways to train, and what a panel has to say of each: where the rows of `up.weight` are, and on which axes."""

from __future__ import annotations

from devwidget.records.ranks.cluster import Cluster
from devwidget.records.ranks.rank import LocalTensor
from devwidget.records.ranks.traced_steps import format_runs

PLACEMENTS = {
    "ddp": {"module.up.weight": ""},
    "fsdp2": {"up.weight": "Shard(0) on rank", "frozen.weight": ""},
    "hsdp": {
        "up.weight": "Replicate on replicate, Shard(0) on shard",
        "frozen.weight": "Replicate on replicate, Shard(0) on shard",
    },
    "tp": {
        "up.weight": "Shard(0, strided 2) on dp, Shard(0) on tp",
        "down.weight": "Shard(0) on dp, Shard(1) on tp",
        "down.bias": "Shard(0) on dp, Replicate on tp",
    },
}
WAYS = tuple(PLACEMENTS)
LOCAL = {"ddp": (32, 16), "fsdp2": (8, 16), "hsdp": (16, 16), "tp": (8, 16)}
"""What a rank holds of the 32 rows of `up.weight`."""
AXES = {"ddp": ["rank"], "fsdp2": ["rank"], "hsdp": ["replicate", "shard"], "tp": ["dp", "tp"]}


def check_told(cluster: Cluster, way: str) -> None:
    """All four ranks answer, nothing is found, and each placement is as it is."""
    assert [rank.state for rank in cluster.ranks] == ["answered"] * 4
    assert cluster.findings == (), [finding.headline for finding in cluster.findings]
    assert [axis.name for axis in cluster.axes] == AXES[way]
    assert [format_runs(placement.ranks) for placement in cluster.placements] == ["ranks 0-3"]
    held = tensors(cluster)
    assert {path: held[path].placement for path in PLACEMENTS[way]} == PLACEMENTS[way]
    (up,) = (tensor for path, tensor in held.items() if path.endswith("up.weight"))
    assert (up.shape, up.local_shape) == ((32, 16), LOCAL[way])


def tensors(cluster: Cluster) -> dict[str, LocalTensor]:
    """Of the ranks of the first placement, by path."""
    return {
        f"{module.path}.{tensor.name}": tensor
        for at, module in enumerate(cluster.modules)
        for tensor in cluster.holding(0, at) or ()
    }
