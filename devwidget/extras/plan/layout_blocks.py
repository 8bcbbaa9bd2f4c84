"""The blocks that a model can be split into, and what each of them takes, measured in one step without values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import all_tensors, own_tensors, registered_entries, tensors_in, walk_modules
from devwidget.extras.plan.changes import Changed, prepare_checkpointing
from devwidget.extras.plan.placement import place_copy
from devwidget.extras.plan.rehearsal import rehearse_step
from devwidget.extras.plan.watcher import Watcher, bytes_by_gpu, virtual_gpu
from devwidget.gpus.state import Account, simulation
from devwidget.gpus.virtual_machine import UNLIMITED, parse_cluster


@dataclass
class ModelBlock:
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


@dataclass(frozen=True)
class Need:
    """What blocks take on one GPU, in bytes.

    Attributes:
        blocks: all of them, in the order in which they run.
        trains: whether there is a backward.
        state: bytes of optimizer state for a byte of weights that are trained.
        step: bytes that the optimizer's step takes besides, for the same.
        backward: bytes that backward takes besides while one block is in it.
    """

    blocks: Sequence[ModelBlock]
    trains: bool = False
    state: float = 0.0
    step: float = 0.0
    backward: int = 0

    def part_of(self, split: Sequence[int], gpu: int) -> list[ModelBlock]:
        """Return the blocks that a split puts on a GPU."""
        return [block for block, at in zip(self.blocks, split, strict=True) if at == gpu]

    def count_least(self, blocks: Sequence[ModelBlock]) -> int:
        """Count what is there at once whatever the step does else: at the end of backward all gradients, and the state."""
        if not self.trains:
            return weight_bytes(blocks)
        return weight_bytes(blocks) + round((1 + self.state) * _trained_bytes(blocks))

    def estimate_peak(self, blocks: Sequence[ModelBlock]) -> int:
        """Estimate the peak of a GPU that has these blocks."""
        weights, trained = weight_bytes(blocks), _trained_bytes(blocks)
        if not self.trains:
            return weights + max((block.kept + block.beyond for block in blocks), default=0)
        kept = most = 0
        late = trained
        for block in blocks:
            most = max(most, kept + block.kept + block.beyond)
            kept += block.kept
            most = max(most, kept + trained - late + self.backward)
            late -= block.trained
        return round(weights + self.state * trained + max(most, kept + self.backward, (1 + self.step) * trained))


def weight_bytes(blocks: Sequence[ModelBlock]) -> int:
    """Return the bytes of their weights, those that are tied once."""
    return sum(block.weights for block in _skip_tied(blocks))


def _trained_bytes(blocks: Sequence[ModelBlock]) -> int:
    return sum(block.trained for block in _skip_tied(blocks))


def _skip_tied(blocks: Sequence[ModelBlock]) -> Iterator[ModelBlock]:
    storages: set[int] = set()
    for block in blocks:
        if not block.tensors or not block.tensors <= storages:
            yield block
        storages |= block.tensors


def find_block_paths(model: nn.Module, finest: bool = False) -> list[str]:
    """Paths of the modules that together are the whole model and are not taken apart, in the order of the model.

    Lists are taken apart, and what has a list of modules in it and no tensor of its own; other modules may use what
    their parts return on one device, as a residual connection does.

    Args:
        finest: take apart what has tensors of its own too; each of them is a block, before the parts of its module.
    """
    return list(_iterate_block_paths("", model, frozenset(getattr(model, "_no_split_modules", None) or ()), finest))


def _iterate_block_paths(path: str, module: nn.Module, whole: frozenset[str], finest: bool) -> Iterator[str]:
    children = registered_entries(module, "_modules")
    if not children or not _is_taken_apart(module, whole, finest):
        if path == "" or any(True for _ in all_tensors(module)):
            yield path
        return
    below = f"{path}." if path else ""
    for name in own_tensors(module):
        yield f"{below}{name}"
    for name, child in children:
        yield from _iterate_block_paths(f"{below}{name}", child, whole, finest)


def _is_taken_apart(module: nn.Module, whole: frozenset[str], finest: bool) -> bool:
    if isinstance(module, nn.ModuleList | nn.Sequential):
        return True
    if type(module).__name__ in whole or (own_tensors(module) and not finest):
        return False
    for _, inner in walk_modules(module):
        if isinstance(inner, nn.ModuleList | nn.Sequential) and len(registered_entries(inner, "_modules")) > 1:
            return True
    return False


@dataclass
class BlockWatcher:
    """Follows the blocks of a copy, by path, through its forward."""

    account: Account
    blocks: dict[str, ModelBlock] = field(default_factory=dict)
    _before: dict[str, int] = field(default_factory=dict)
    _handles: list[Any] = field(default_factory=list)

    def attach_hooks(self, copied: nn.Module, paths: Sequence[str]) -> None:
        """Watch these blocks of a copy; the hooks are on the copy alone."""
        for path in paths:
            part = _find_part(copied, path)
            tensors = all_tensors(part) if isinstance(part, nn.Module) else [part]
            trained = [each for each in tensors if each.requires_grad]
            storages = frozenset(tensor.untyped_storage()._cdata for tensor in tensors)
            block = ModelBlock(path, _gpu_bytes(tensors), _gpu_bytes(trained), tensors=storages)
            self.blocks[path] = block
            block.is_module = isinstance(part, nn.Module)
            if isinstance(part, nn.Module):
                self._handles += [
                    part.register_forward_pre_hook(self._make_pre_hook(path)),
                    part.register_forward_hook(self._make_hook(path)),
                ]

    def _held_bytes(self) -> int:
        simulation.ledger.settle_freed()
        return self.account.held

    def _make_pre_hook(self, path: str) -> Callable[..., None]:
        def enter_block(module: nn.Module, args: Any) -> None:
            self._before[path] = self._held_bytes()
            self.account.peak = self.account.held

        return enter_block

    def _make_hook(self, path: str) -> Callable[..., None]:
        def leave_block(module: nn.Module, args: Any, out: Any) -> None:
            block, held = self.blocks[path], self._held_bytes()
            if block.order is None:
                block.order = sum(each.order is not None for each in self.blocks.values())
                passed = list(tensors_in(out))
                block.passed = _gpu_bytes(passed)
                if passed:
                    block.dtype, block.shape = str(passed[0].dtype).removeprefix("torch."), tuple(passed[0].shape)
                block.kept = max(held - self._before[path], 0)
            block.beyond = max(block.beyond, self.account.peak - max(held, self._before[path]))

        return leave_block

    def list_in_order(self) -> list[ModelBlock]:
        """Return the blocks in the order in which they ran; one that never ran comes after its predecessor in the model."""
        last, place_of = -1.0, {}
        for path, block in self.blocks.items():
            last = float(block.order) if block.order is not None else last + 0.001
            place_of[path] = last
        return sorted(self.blocks.values(), key=lambda block: place_of[block.path])

    def remove_hooks(self) -> None:
        """Take the hooks off: a second step tells nothing new."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def _find_part(module: nn.Module, path: str) -> nn.Module | torch.Tensor:
    name, _, rest = path.partition(".")
    if not name:
        return module
    child: nn.Module | None = dict(registered_entries(module, "_modules")).get(name)
    if child is None:
        return own_tensors(module)[name]
    return _find_part(child, rest)


def _gpu_bytes(tensors: list[torch.Tensor]) -> int:
    return sum(bytes_by_gpu(tensors).values())


def measure_blocks(
    model: nn.Module, inputs: Arguments, asked: dict[str, Any], paths: Sequence[str], lengths_stay: bool
) -> Need:
    """Measure what each block takes, in one step on one GPU of any size."""
    cluster = parse_cluster(1, UNLIMITED, False)
    watcher = Watcher(1)
    # All of the copy on one GPU, wherever its parts are.
    changed = prepare_checkpointing(Changed(prepare=lambda copied: copied.to(virtual_gpu(0))), asked)
    with place_copy(model, "as is", cluster, watcher, changed) as (copied, (account,)):
        blocks = BlockWatcher(account)
        blocks.attach_hooks(copied.inner, paths)
        step = model, copied, inputs, asked["loss_fn"], asked["optimizer"], watcher, asked["loop"]
        phases = rehearse_step(*step, after_forward=blocks.remove_hooks, lengths_stay=lengths_stay)
        device = watcher.describe_device(0, account, sum(block.weights for block in blocks.blocks.values()))
    found, trains = blocks.list_in_order(), "backward" in phases
    trained = sum(block.trained for block in found)
    state = watcher.optimizer.get(0, 0) / max(trained, 1)
    plain = Need(found, trains, state)
    more = max(device.peak - plain.estimate_peak(found), 0)
    match device.peak_at.phase if device.peak_at else "":
        case "optimizer":
            return Need(found, trains, state, step=more / max(trained, 1))
        case "backward" | "loss":
            return Need(found, trains, state, backward=more)
    return plain
