"""What the ranks of a job hold side by side: a column for each different way in which the whole model is placed."""

from __future__ import annotations

from dataclasses import dataclass

from devwidget.extras.ranks.records.cluster import Cluster
from devwidget.extras.ranks.records.rank import Holding, LocalTensor, RankModel, RankModule


@dataclass(frozen=True, slots=True)
class Column:
    """What the ranks of one kind hold.

    Attributes:
        ranks: which ranks these are.
        held: what each module of the job holds there; None where these ranks do not have it.
    """

    ranks: tuple[int, ...]
    held: tuple[Holding | None, ...]

    @property
    def holdings(self) -> list[tuple[int, Holding]]:
        """The modules that these ranks have, by number, with what each holds."""
        return [(module, holding) for module, holding in enumerate(self.held) if holding is not None]

    @property
    def tensors(self) -> list[LocalTensor]:
        """All that one of these ranks holds."""
        return [tensor for holding in self.held for tensor in holding or ()]

    @property
    def modules(self) -> frozenset[int]:
        """The numbers of the modules that these ranks have."""
        return frozenset(module for module, _ in self.holdings)

    @property
    def bytes(self) -> int:
        """Of all that one of these ranks holds."""
        return sum(tensor.local_bytes for tensor in self.tensors)


@dataclass(frozen=True, slots=True)
class Columns:
    """All of them.

    Attributes:
        modules: of all ranks together, in pre-order.
        each: each different column once, that of the lowest rank first.
    """

    modules: tuple[RankModule, ...]
    each: tuple[Column, ...]

    def place_ranks(self) -> dict[int, int]:
        """By the number of a rank the place of its column; without those that have not said."""
        return {rank: place for place, column in enumerate(self.each) for rank in column.ranks}

    def tensor_path(self, module: int, name: str) -> str:
        """`blocks.0.up.weight`."""
        path = self.modules[module].path
        if path:
            return f"{path}.{name}"
        return name


def lay_out_columns(cluster: Cluster) -> Columns:
    """The columns of a job; what each module holds is looked up once for all ranks with the same model."""
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
    """The different models, and by the identity of each its ranks."""
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
    """What each module of the job holds in one model; equal holdings are one object."""
    holdings = [same.setdefault(holding, holding) for holding in model.holdings]
    own = {_module_key(module): holdings[at] for module, at in zip(model.modules, model.held, strict=True)}
    return tuple(own.get(key) for key in modules)


def _module_key(module: RankModule) -> tuple[str, str]:
    """One of another class at the same path is another module."""
    return module.path, module.class_name
