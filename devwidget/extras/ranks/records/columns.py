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
    """All columns of a job.

    Attributes:
        modules: Modules of all ranks, in pre-order.
        each: Each distinct column once, that of the lowest rank first.
    """

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
    """Return the columns of a job. Modules are looked up once for all ranks with the same model."""
    models, ranks_of = _find_models(cluster)
    modules: dict[tuple[str, str], RankModule] = {}
    for model in models:
        for module in model.modules:
            modules.setdefault(_module_key(module), module)
    same: dict[Holding, Holding] = {}
    columns: dict[tuple[int, ...], list[int]] = {}
    held_by: dict[tuple[int, ...], tuple[Holding | None, ...]] = {}
    for model in models:
        held = _find_held(model, modules, same)
        key = tuple(map(id, held))
        held_by[key] = held
        columns.setdefault(key, []).extend(ranks_of[id(model)])
    found = [Column(tuple(sorted(ranks)), held_by[key]) for key, ranks in columns.items()]
    return Columns(tuple(modules.values()), tuple(sorted(found, key=lambda column: column.ranks)))


def _find_models(cluster: Cluster) -> tuple[list[RankModel], dict[int, list[int]]]:
    """Return the distinct models, with the ranks of each by its id."""
    models: list[RankModel] = []
    ranks: dict[int, list[int]] = {}
    for rank in cluster.ranks:
        model = rank.said.model
        if model is None:
            continue
        if id(model) not in ranks:
            models.append(model)
        ranks.setdefault(id(model), []).append(rank.number)
    return models, ranks


def _find_held(
    model: RankModel, modules: dict[tuple[str, str], RankModule], same: dict[Holding, Holding]
) -> tuple[Holding | None, ...]:
    """Return the holding of each module of the job in one model; equal holdings are one object."""
    holdings = [same.setdefault(holding, holding) for holding in model.holdings]
    own = {_module_key(module): holdings[at] for module, at in zip(model.modules, model.held, strict=True)}
    return tuple(own.get(key) for key in modules)


def _module_key(module: RankModule) -> tuple[str, str]:
    """Return the key of a module; one of another class at the same path is another module."""
    return module.path, module.class_name
