"""A generation with a cache of keys and values: the prompt is read and one token written, at three lengths."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import is_tensor, replace_tensors, tensors_in
from devwidget.extras.plan.changes import Changed, find_batch_size, resize_batch
from devwidget.extras.plan.placement import MetaCopies, PlacedCopy, place_copy
from devwidget.extras.plan.records.answers import CacheAt, Generation
from devwidget.extras.plan.sizes import choose_size, find_ends
from devwidget.extras.plan.watcher import Watcher, bytes_by_gpu
from devwidget.gpus.state import Account, simulation
from devwidget.gpus.virtual_machine import parse_cluster
from devwidget.records.errors import DevwidgetError, message, nearest, require_package
from devwidget.records.schema.message import Message

CACHES = "dynamic", "static"
# Runs to find the length with which a GPU is full, and how close it has to be, as a share.
MOST_RUNS, CLOSE = 16, 0.005


def make_generation(
    model: nn.Module, inputs: Arguments, asked: dict[str, Any], new_tokens: int, cache: str = "dynamic", num_beams: int = 1
) -> Generation:
    """See `Plan.generation`."""
    if cache not in CACHES:
        what = Message("`cache` cannot be {cache}{hint}", cache=repr(cache), hint=nearest(str(cache), CACHES))
        raise DevwidgetError(what, instead=Message("one of {known}", known=", ".join(map(repr, CACHES))))
    texts, prompt = (find_batch_size(list(tensors_in((inputs.args, inputs.kwargs))), dim) for dim in (0, 1))
    if texts is None or prompt is None:
        raise DevwidgetError(Message("the batch holds no text"), why=Message("no integer tensor in it has a second dimension"))
    is_static, total = cache == "static", prompt + new_tokens
    writing = _Writing(model, inputs, asked, texts, prompt, is_static, num_beams)
    run_at = functools.cache(writing.run_length)
    runs = tuple(map(run_at, (total, 2 * total, total) if is_static else (prompt, 2 * prompt, total)))
    first, second, last = runs
    cluster = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"])
    context = 0
    if cluster.card is not None:
        context = cluster.card.context_bytes
    capacity = min(cluster.memory_bytes) - context
    longest = find_full_length(run_at, (first, second), capacity)
    peak, per_token = max(first.prefill, last.decode), (second.cache - first.cache) / (second.length - first.length)
    reserved = max(first.prefill_reserved, last.decode_reserved)
    answer = peak, capacity, longest, max(peak, reserved) <= capacity
    runs = (second, last) if is_static else runs
    how = _count_logits(model, inputs), cache, context, num_beams
    return Generation(type(model).__name__, prompt, new_tokens, per_token, *answer, runs, reserved, *how)


def _count_logits(model: nn.Module, inputs: Arguments) -> int:
    """Count the positions of the prompt that have logits; 0 for all."""
    asked = {**_ask_last_logits(model), **inputs.kwargs}
    for name in _KEEPS:
        if name in asked:
            kept = asked[name]
            return int(kept.numel()) if is_tensor(kept) else int(kept)
    return 0


def find_full_length(run_at: Callable[[int], CacheAt], runs: tuple[CacheAt, CacheAt], capacity: int) -> int:
    """Return the length with which a GPU is full: the longest that was run and fits; 0 if none does or nothing grows."""
    rooms = {run.length: [capacity - run.taken] for run in runs}
    if rooms[runs[1].length] >= rooms[runs[0].length]:
        return 0
    for _ in range(MOST_RUNS):
        fitting, failing = find_ends(rooms)
        guess = choose_size(rooms)
        if guess is None or (failing and failing - fitting <= CLOSE * fitting):
            break
        try:
            rooms[guess] = [capacity - run_at(guess).taken]
        except DevwidgetError:
            # Beyond what the model has positions for.
            break
    fitting, _ = find_ends(rooms)
    return fitting


@dataclass(frozen=True)
class _Writing:
    """A generation to be run at several lengths.

    Attributes:
        texts: of the batch.
        prompt: tokens of each.
        is_static: whether the cache is there for all tokens from the start.
        num_beams: each text is there so often, from the prompt on.
    """

    model: nn.Module
    inputs: Arguments
    asked: dict[str, Any]
    texts: int
    prompt: int
    is_static: bool
    num_beams: int

    def run_length(self, length: int) -> CacheAt:
        """Read a text of a length, or the prompt with a static cache of it, and write one token.

        Raises:
            DevwidgetError: for a model without a cache.
        """
        gpus = self.asked["gpus"]
        cluster, watcher = parse_cluster(gpus, self.asked["memory"], False, card=self.asked["card"]), Watcher(gpus)
        placed = place_copy(self.model, self.asked["placement"], cluster, watcher, Changed())
        with torch.no_grad(), placed as (copied, accounts):
            copied.inner.eval()
            try:
                return self._read_and_write(copied, accounts, length)
            except (RuntimeError, TypeError, AttributeError, ValueError) as error:
                facts = {"kind": type(self.model).__name__, "error": message(error)}
                why = Message("in transformers a model returns and accepts a `cache`, called `past_key_values` before 5.24")
                raise DevwidgetError(Message("{kind} cannot generate with a cache: {error}", **facts), why=why) from error

    def _read_and_write(self, copied: PlacedCopy, accounts: tuple[Account, ...], length: int) -> CacheAt:
        text = self._place_text(copied, self.prompt if self.is_static else length)
        token = self._place_text(copied, 1)
        before, asked, choice = _held_bytes(accounts), _ask_last_logits(copied.inner), _Choice(self.num_beams)
        made = {}
        if self.is_static:
            made = _make_static_cache(copied.inner, length)
        cache = _write_token(copied, {**asked, **text.kwargs, **made}, text.args, choice)
        prefill, prefill_reserved = _peak_bytes(accounts)
        kept = _held_bytes(accounts) - choice.count_bytes()
        cache = _write_token(copied, {**asked, **token.kwargs, **cache}, token.args, choice)
        decode, decode_reserved = _peak_bytes(accounts)
        return CacheAt(length, max(kept - before, 0), prefill, decode, prefill_reserved, decode_reserved)

    def _place_text(self, copied: PlacedCopy, length: int) -> Arguments:
        """Make the texts as many and as long as asked, on the first GPU; the model makes masks that are as long as it needs."""
        copies, inputs = MetaCopies(lambda tensor: copied.home), self.inputs
        words = {
            name: value for name, value in inputs.kwargs.items() if name not in ("attention_mask", "labels", "position_ids")
        }

        def resize_text(tensor: torch.Tensor) -> torch.Tensor:
            longer = resize_batch(tensor, 1, self.prompt, length)
            return copies.copy_tensor(resize_batch(longer, 0, self.texts, self.texts * self.num_beams))

        return Arguments(*replace_tensors((inputs.args, words), resize_text))


def _write_token(copied: PlacedCopy, given: dict[str, Any], args: tuple[Any, ...], choice: _Choice) -> dict[str, Any]:
    """Run one forward and choose from its logits; return the cache, by the name under which the model takes it."""
    out = copied.placed(*args, **{**given, "use_cache": True})
    choice.score_tokens(out)
    cache = _take_cache(copied.inner, out)
    # As `generate` does before it goes on.
    del out
    choice.choose_beams(copied.inner, cache)
    return cache


@dataclass
class _Choice:
    """The choice of the next token, and what `generate` still holds of it while the next forward runs.

    Source: `_sample` and `_beam_search` in transformers' `generation/utils.py`.
    """

    num_beams: int
    logits: torch.Tensor | None = None
    scores: torch.Tensor | None = None

    def score_tokens(self, out: Any) -> None:
        """Copy the logits of the last position in float32, and choose from them; beams are chosen by their logarithms."""
        logits = getattr(out, "logits", None)
        if is_tensor(logits) and logits.dim() == 3:
            self.logits = logits[:, -1, :].to(copy=True, dtype=torch.float32)
            if self.num_beams == 1:
                self.logits.argmax(-1)
            else:
                self.scores = self.logits.log_softmax(-1)

    def choose_beams(self, model: nn.Module, cache: dict[str, Any]) -> None:
        """Continue with the best beams of each text: their keys and values are copied, one layer after the other."""
        if self.num_beams == 1:
            return
        if self.scores is None:
            raise AttributeError("its output has no logits, by which beams are chosen")
        rows = len(self.scores)
        so_far = torch.zeros(rows, 1, device=self.scores.device)
        # In two steps: the scores before are let go when those of the whole beams are there.
        self.scores = self.scores + so_far
        self.scores.view(rows // self.num_beams, -1).topk(2 * self.num_beams)
        best = torch.arange(rows, device=self.scores.device)
        for name, kept in cache.items():
            reorder = getattr(model, "_reorder_cache", None)
            cache[name] = kept if reorder is None else reorder(kept, best)
            if reorder is None:
                kept.reorder_cache(best)

    def count_bytes(self) -> int:
        """Bytes of what is held."""
        return sum(bytes_by_gpu([held for held in (self.logits, self.scores) if held is not None]).values())


# What transformers call the keys and values, from 5.24 on and before.
_CACHES = "cache", "past_key_values"


def _make_static_cache(model: nn.Module, length: int) -> dict[str, Any]:
    """Return a cache of transformers for so many tokens, as `generate` makes it, by the name under which the model takes it."""
    require_package("transformers", Message("a static cache"))
    from transformers import StaticCache

    # The last token is written and not read again.
    config: Any = model.config
    cache = StaticCache(config=config.get_text_config(decoder=True), max_cache_len=length - 1)
    return {_name_of_cache(model, _CACHES[-1]): cache}


def _take_cache(model: nn.Module, out: Any) -> dict[str, Any]:
    """Return the cache of an output, by the name under which the model takes it; raise AttributeError if it has none."""
    given = next((name for name in _CACHES if getattr(out, name, None) is not None), _CACHES[-1])
    return {_name_of_cache(model, given): getattr(out, given)}


def _name_of_cache(model: nn.Module, given: str) -> str:
    takes = inspect.signature(type(model).forward).parameters
    # A wrapper takes anything, and hands it on to what has made the output.
    return next((name for name in _CACHES if name in takes), given)


# What transformers call how many positions a model makes logits of, now and before 4.49.
_KEEPS = "logits_to_keep", "num_logits_to_keep"


def _ask_last_logits(model: nn.Module) -> dict[str, int]:
    """Return the argument by which transformers' `generate` asks for the last logits alone; {} for other models."""
    for name in _KEEPS:
        # A wrapper, such as PEFT's, hands on the method of what it wraps.
        supports = getattr(model, f"_supports_{name}", None)
        if supports() if callable(supports) else name in inspect.signature(type(model).forward).parameters:
            return {name: 1}
    return {}


def _held_bytes(accounts: tuple[Account, ...]) -> int:
    """Return the bytes on all GPUs, and start peaks again from here, without what is cached."""
    simulation.ledger.settle_freed()
    for account in accounts:
        account.release_cache()
        account.reset_peaks()
    return sum(account.held for account in accounts)


def _peak_bytes(accounts: tuple[Account, ...]) -> tuple[int, int]:
    """Return the most that is allocated on a GPU, and that is reserved on one; without a card nothing is."""
    simulation.ledger.settle_freed()
    return max(account.peak for account in accounts), max(account.peak_in_segments for account in accounts)
