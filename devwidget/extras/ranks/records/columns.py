"""What the ranks of a job hold: one column for each distinct placement of the whole model."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.rank import Holding, LocalTensor, RankModel, RankModule


@dataclass(frozen=True, slots=True)
class Column:
    """What the ranks of one placement hold.

    Attributes:
        ranks: Numbers of these ranks.
        held: Holding of each module of the job; None if these ranks do not have the module.
    """

    ranks: tuple[int, ...]
    held: tuple[Holding | None, ...]

    @property
    def holdings(self) -> list[tuple[int, Holding]]:
        """Numbers of the modules of these ranks, each with its holding."""
        return [(module, holding) for module, holding in enumerate(self.held) if holding is not None]

    @property
    def tensors(self) -> list[LocalTensor]:
        """All tensors of one of these ranks."""
        return [tensor for holding in self.held for tensor in holding or ()]

    @property
    def modules(self) -> frozenset[int]:
        """Numbers of the modules of these ranks."""
        return frozenset(module for module, _ in self.holdings)

    @property
    def bytes(self) -> int:
        """Bytes that one of these ranks holds."""
        return sum(tensor.local_bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Columns:
    """Modules of all ranks of a job, and each distinct column once, that of the lowest rank first."""

    modules: tuple[RankModule, ...]
    each: tuple[Column, ...]

    def place_ranks(self) -> dict[int, int]:
        """Return the index of the column of each rank, without ranks that did not report."""
        return {rank: place for place, column in enumerate(self.each) for rank in column.ranks}

    def tensor_path(self, module: int, name: str) -> str:
        """Return `blocks.0.up.weight`."""
        path = self.modules[module].path
        return f"{path}.{name}" if path else name


def lay_out_columns(cluster: Cluster) -> Columns:
    """Return the columns of a job. Equal models are one object, which is looked at once for all of its ranks."""
    models: dict[int, tuple[RankModel, list[int]]] = {}
    for rank in cluster.ranks:
        model = rank.said.model
        if model is not None:
            models.setdefault(id(model), (model, []))[1].append(rank.number)
    modules: dict[tuple[str, str], RankModule] = {}
    for model, _ in models.values():
        for module in model.modules:
            modules.setdefault(_module_key(module), module)
    columns: dict[tuple[Holding | None, ...], list[int]] = {}
    for model, ranks in models.values():
        held = map(model.holdings.__getitem__, model.held)
        own = dict(zip(map(_module_key, model.modules), held, strict=True))
        columns.setdefault(tuple(map(own.get, modules)), []).extend(ranks)
    found = [Column(tuple(sorted(ranks)), held) for held, ranks in columns.items()]
    return Columns(tuple(modules.values()), tuple(sorted(found, key=lambda column: column.ranks)))


def _module_key(module: RankModule) -> tuple[str, str]:
    """Return the key of a module; one of another class at the same path is another module."""
    return module.path, module.class_name
