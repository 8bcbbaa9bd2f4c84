"""foreign-gpu: a rank holds memory on the GPU of another rank, or several ranks share one.

Why: each process that uses a GPU allocates hundreds of MB on it for the CUDA context; GPU 0 fills up first.
Bad: `model.cuda()` or `torch.load(path)` in every rank, before the rank has selected its GPU.
Good: `torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))` first, and `torch.load(path, map_location="cpu")`.
Source: https://github.com/pytorch/pytorch/issues/23138
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.extras.ranks.records.cluster import Cluster, Rank, group_by, numbers_of
from devwidget.extras.ranks.records.rank import RankMemory
from devwidget.extras.ranks.rules.over_ranks import answered, answered_by, cluster_rule, format_rank_ranges, name_ranks
from devwidget.records.finding import Finding, Fix
from devwidget.records.schema.message import Message

_CHOOSE = 'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))'
Card = tuple[str, str]
"""Machine and GPU; ranks that each see only their own GPU all call it `cuda:0`."""


@cluster_rule("foreign-gpu")
def check(cluster: Cluster) -> Iterator[Finding]:
    """Yield one finding per GPU that several ranks keep their models on, and one per GPU that other ranks use as well."""
    owners = group_by(cluster.ranks, _own_card)
    owners.pop(None, None)
    for ranks in owners.values():
        if len(ranks) > 1:
            yield _crowded(ranks)
    strays: dict[Card, list[tuple[Rank, RankMemory]]] = {}
    for rank in cluster.ranks:
        for memory in rank.said.memory:
            card = rank.said.host, memory.card
            if memory.card and card in owners and _own_card(rank) not in (None, card):
                strays.setdefault(card, []).append((rank, memory))
    for card, found in strays.items():
        yield _stray(found, owners[card])


def _own_card(rank: Rank) -> Card | None:
    for memory in rank.said.memory:
        if memory.card and memory.device == rank.said.device:
            return rank.said.host, memory.card
    return None


def _crowded(ranks: list[Rank]) -> Finding:
    return Finding(
        "foreign-gpu", "warning", None,
        Message("{ranks} keep their models on the same GPU, `{device}` of {host}",
                ranks=name_ranks(ranks), device=str(ranks[0].said.device), host=ranks[0].said.host),
        Message("each process has its own context on that GPU; they share its memory and compute while other GPUs stay idle"),
        fixes=(Fix(Message("select a GPU for each rank before the first use of CUDA"), _CHOOSE),),
        roles=answered_by(ranks),
    )  # fmt: skip


def _stray(found: list[tuple[Rank, RankMemory]], owners: list[Rank]) -> Finding:
    taken = max(memory.reserved or memory.allocated for _, memory in found)
    strays = numbers_of(rank for rank, _ in found)
    facts = {"bytes": f"{taken:,}", "device": str(found[0][1].device), "owners": name_ranks(owners)}
    return Finding(
        "foreign-gpu", "warning", None,
        Message.of(len(found), "{ranks} uses up to {bytes} bytes on `{device}`, the GPU of {owners}",
                   "{ranks} use up to {bytes} bytes on `{device}`, the GPU of {owners}",
                   ranks=format_rank_ranges(strays), **facts),
        Message("a process that uses a GPU also allocates memory for its context there, so that GPU fills up first"),
        fixes=(
            Fix(Message("select the GPU of the rank before the first use of CUDA"), _CHOOSE),
            Fix(Message("load checkpoints to the CPU"), 'torch.load(path, map_location="cpu")'),
        ),
        roles=answered((*strays, *numbers_of(owners))),
    )  # fmt: skip
