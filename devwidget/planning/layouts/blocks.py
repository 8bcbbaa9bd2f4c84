"""The blocks that a model can be split into, and what each of them takes, measured in one step without values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import all_tensors, own_tensors, registered, walk
from devwidget.capture.tensors import tensors_in
from devwidget.planning.watcher import bytes_by_gpu
from devwidget.simulator.devices.ledger import Account


@dataclass
class Block:
    """One of them, in bytes.

    Attributes:
        path: of the module, or of a tensor of a module that is taken apart.
        weights: parameters and buffers; `trained` of them have gradients.
        kept: held when its forward ends and not before, such as what backward needs.
        beyond: held at its forward's peak beyond what it keeps.
        passed: of its output, which crosses if the next block is on another GPU.
        dtype: of the first tensor of it.
        shape: of the same.
        order: when it ran first; None if it never did.
        tensors: storages of its weights, by which ties are known.
        is_module: else it is a tensor of a module that is taken apart.
    """

    path: str
    weights: int
    trained: int
    kept: int = 0
    beyond: int = 0
    passed: int = 0
    dtype: str = ""
    shape: tuple[int, ...] = ()
    order: int | None = None
    tensors: frozenset[int] = frozenset()
    is_module: bool = True


def paths_of_blocks(model: nn.Module, finest: bool = False) -> list[str]:
    """Paths of the modules that together are the whole model and are not taken apart, in the order of the model.

    Lists are taken apart, and what has a list of modules in it and no tensor of its own; other modules may use what
    their parts return on one device, as a residual connection does.

    Args:
        finest: take apart what has tensors of its own too; each of them is a block, before the parts of its module.
    """
    return list(_blocks("", model, frozenset(getattr(model, "_no_split_modules", None) or ()), finest))


def _blocks(path: str, module: nn.Module, whole: frozenset[str], finest: bool) -> Iterator[str]:
    children = registered(module, "_modules")
    if not children or not _comes_apart(module, whole, finest):
        if path == "" or any(True for _ in all_tensors(module)):
            yield path
        return
    below = f"{path}." if path else ""
    yield from (f"{below}{name}" for name in own_tensors(module))
    for name, child in children:
        yield from _blocks(f"{below}{name}", child, whole, finest)


def _comes_apart(module: nn.Module, whole: frozenset[str], finest: bool) -> bool:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        return True
    if type(module).__name__ in whole or (own_tensors(module) and not finest):
        return False
    return any(_is_list(inner) for _, inner in walk(module))


def _is_list(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList | nn.Sequential) and len(registered(module, "_modules")) > 1


@dataclass
class BlockWatcher:
    """Follows the blocks of a copy through its forward.

    Attributes:
        account: of the GPU that the copy is on.
        settle: brings it up to date.
        blocks: by path.
    """

    account: Account
    settle: Callable[[], None]
    blocks: dict[str, Block] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)
    _handles: list[Any] = field(default_factory=list)

    def attach(self, copied: nn.Module, paths: Sequence[str]) -> None:
        """Watch these blocks of a copy; the hooks are on the copy alone."""
        for path in paths:
            part = _part(copied, path)
            tensors = all_tensors(part) if isinstance(part, nn.Module) else [part]
            weights, trained = (_bytes(part) for part in (tensors, [each for each in tensors if each.requires_grad]))
            storages = frozenset(tensor.untyped_storage()._cdata for tensor in tensors)
            self.blocks[path] = Block(path, weights, trained, tensors=storages, is_module=isinstance(part, nn.Module))
            if isinstance(part, nn.Module):
                self._handles += [
                    part.register_forward_pre_hook(self._begins(path)),
                    part.register_forward_hook(self._ends(path)),
                ]

    def _held(self) -> int:
        self.settle()
        return self.account.held

    def _begins(self, path: str) -> Callable[..., None]:
        def begins(module: nn.Module, args: Any) -> None:
            self._before[path] = self._held()
            self.account.peak = self.account.held

        return begins

    def _ends(self, path: str) -> Callable[..., None]:
        def ends(module: nn.Module, args: Any, out: Any) -> None:
            block, held = self.blocks[path], self._held()
            if block.order is None:
                block.order = sum(each.order is not None for each in self.blocks.values())
                passed = list(tensors_in(out))
                block.passed = _bytes(passed)
                if passed:
                    block.dtype, block.shape = str(passed[0].dtype).removeprefix("torch."), tuple(passed[0].shape)
                block.kept = max(held - self._before[path], 0)
            block.beyond = max(block.beyond, self.account.peak - max(held, self._before[path]))

        return ends

    def in_order(self) -> list[Block]:
        """The blocks as they ran; those that never did stand behind the one before them in the model."""
        last, ordered = -1.0, []
        for block in self.blocks.values():
            last = float(block.order) if block.order is not None else last + 0.001
            ordered.append((last, block))
        return [block for _, block in sorted(ordered, key=lambda pair: pair[0])]

    def detach(self) -> None:
        """Take the hooks off: a second step tells nothing new."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _part(module: nn.Module, path: str) -> nn.Module | torch.Tensor:
    """A module or a tensor by its path."""
    name, _, rest = path.partition(".")
    if not name:
        return module
    child: nn.Module | None = dict(registered(module, "_modules")).get(name)
    return own_tensors(module)[name] if child is None else _part(child, rest)


def _bytes(tensors: list[torch.Tensor]) -> int:
    return sum(bytes_by_gpu(tensors).values())
