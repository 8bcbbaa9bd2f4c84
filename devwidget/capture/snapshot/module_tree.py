"""Every module of a tree once, in pre-order, without recursion and without calling anything of the modules."""

from __future__ import annotations

from collections import defaultdict
from functools import cached_property

from torch import nn

from devwidget.capture.modules import entries_in, is_module, own, registered_entries

Visit = tuple[nn.Module, str, int, int]
"""One module: its dotted path, the place of its parent in the walk (-1 for the root), and its depth."""


class ModuleTree:
    """The walk over one root.

    Attributes:
        visits: each module once, at its first path.
        index: place in `visits` by `id(module)`; the visits keep the modules, and so the ids, alive.
        also: the further paths of modules that are registered more than once, by place.
    """

    def __init__(self, root: nn.Module) -> None:
        self.visits: list[Visit] = []
        self.index: dict[int, int] = {}
        self.also: dict[int, list[str]] = defaultdict(list)
        visits, index = self.visits, self.index
        waiting: list[Visit] = [(root, "", -1, 0)]
        while waiting:
            visit = waiting.pop()
            module, path, _, depth = visit
            fields = own(module)
            if "_actual_script_module" in fields:  # what torch.jit.trace returns is a shell
                module = fields["_actual_script_module"]
                fields, visit = own(module), (module, *visit[1:])
            place = index.setdefault(id(module), len(visits))
            if place < len(visits):
                self.also[place].append(path)
                continue
            visits.append(visit)
            children = entries_in(fields, "_modules")
            if children:
                prefix = f"{path}." if path else ""
                found = [(child, prefix + name, place, depth + 1) for name, child in children if is_module(child)]
                waiting += reversed(found)  # the last in is the first out

    def registers(self, value: object) -> bool:
        """True for the modules of this tree and for their registered parameters."""
        return id(value) in (self.index if is_module(value) else self.parameter_paths)

    @cached_property
    def parameter_paths(self) -> dict[int, str]:
        """First path of each registered parameter, by `id(parameter)`."""
        paths: dict[int, str] = {}
        for module, path, _, _ in self.visits:
            for name, parameter in registered_entries(module, "_parameters"):
                paths.setdefault(id(parameter), f"{path}.{name}" if path else name)
        return paths
