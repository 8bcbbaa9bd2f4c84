"""A generation with a cache of keys and values: the prompt is read and one token written, at three lengths."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from devwidget.capture.step.batch import Arguments
from devwidget.capture.tensors import is_tensor, replace_tensors, tensors_in
from devwidget.planning.changes import Changed, resized, size_of
from devwidget.planning.placement import PlacedCopy, placed_copy
from devwidget.planning.watcher import Watcher
from devwidget.records.answers.generation import CacheAt, Generation
from devwidget.records.errors import DevwidgetError, message
from devwidget.records.schema.message import Message
from devwidget.simulator.cluster import parse_cluster
from devwidget.simulator.devices.ledger import Account
from devwidget.simulator.devices.ledger_listeners import settle_accounts
from devwidget.simulator.without_values.meta_copies import MetaCopies


def make_generation(model: nn.Module, inputs: Arguments, asked: dict[str, Any], new_tokens: int) -> Generation:
    """See `Plan.generation`."""
    prompt = size_of(list(tensors_in((inputs.args, inputs.kwargs))), 1)
    if prompt is None:
        raise DevwidgetError(
            Message("the batch holds no text"), why=Message("no tensor of whole numbers in it has a second dimension")
        )
    runs = tuple(run(model, inputs, asked, prompt, length) for length in (prompt, 2 * prompt, prompt + new_tokens))
    first, second, last = runs
    cluster = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"])
    capacity = min(cluster.memory_bytes) - (cluster.card.context_bytes if cluster.card is not None else 0)
    growth = (second.taken - first.taken) / prompt
    longest = int(first.length + (capacity - first.taken) / growth) if growth > 0 else 0
    peak, per_token = max(first.prefill, last.decode), (second.cache - first.cache) / prompt
    reserved = max(first.prefill_reserved, last.decode_reserved)
    answer = peak, capacity, max(longest, 0), max(peak, reserved) <= capacity
    asked_for = {**keeps_last(model), **inputs.kwargs}
    logits = next((_positions(asked_for[name]) for name in _KEEPS if name in asked_for), 0)
    return Generation(type(model).__name__, prompt, new_tokens, per_token, *answer, runs, reserved, logits)


def run(model: nn.Module, inputs: Arguments, asked: dict[str, Any], prompt: int, length: int) -> CacheAt:
    """Read a text of a length and write one token.

    Raises:
        DevwidgetError: for a model that has no cache as transformers have, or that fails.
    """
    cluster, watcher = parse_cluster(asked["gpus"], asked["memory"], False, card=asked["card"]), Watcher(asked["gpus"])
    with torch.no_grad(), placed_copy(model, asked["placement"], cluster, watcher, Changed()) as (copied, accounts):
        copied.inner.eval()
        try:
            return _steps(copied, inputs, accounts, prompt, length)
        except (RuntimeError, TypeError, AttributeError, ValueError) as error:
            fails = Message("{kind} does not write on with a cache: {error}", kind=type(model).__name__, error=message(error))
            raise DevwidgetError(
                fails, why=Message("its output has `past_key_values` in transformers, and it takes them")
            ) from error


def _steps(copied: PlacedCopy, inputs: Arguments, accounts: tuple[Account, ...], prompt: int, length: int) -> CacheAt:
    text, token = (_there(copied, inputs, prompt, size) for size in (length, 1))
    before, asked = _held(accounts), keeps_last(copied.inner)
    out = copied.placed(*text.args, **{**asked, **text.kwargs, "use_cache": True})
    cache, (prefill, prefill_reserved) = out.past_key_values, _peaks(accounts)
    del out
    kept = _held(accounts)
    copied.placed(*token.args, **{**asked, **token.kwargs, "past_key_values": cache, "use_cache": True})
    decode, decode_reserved = _peaks(accounts)
    return CacheAt(length, max(kept - before, 0), prefill, decode, prefill_reserved, decode_reserved)


_KEEPS = "logits_to_keep", "num_logits_to_keep"
"""What transformers call how many positions a model makes logits of, now and before 4.49."""


def keeps_last(model: nn.Module) -> dict[str, int]:
    """What `generate` of transformers asks of a model that can make the logits of the last position alone; {} for others."""
    for name in _KEEPS:
        supports = getattr(model, f"_supports_{name}", None)  # a wrapper, such as PEFT's, hands on the method of what it wraps
        if supports() if callable(supports) else name in inspect.signature(type(model).forward).parameters:
            return {name: 1}
    return {}


def _positions(kept: Any) -> int:
    return int(kept.numel()) if is_tensor(kept) else int(kept)


def _there(copied: PlacedCopy, inputs: Arguments, prompt: int, length: int) -> Arguments:
    """The text with another length, on the first GPU; the model makes masks that are as long as it needs."""
    copies = MetaCopies(lambda tensor: copied.home)
    words = {name: value for name, value in inputs.kwargs.items() if name not in ("attention_mask", "labels", "position_ids")}
    parts = replace_tensors((inputs.args, words), lambda tensor: copies.copy_tensor(resized(tensor, 1, prompt, length)))
    return Arguments(*parts)


def _held(accounts: tuple[Account, ...]) -> int:
    """Bytes on all GPUs; peaks start again from here, without what is cached: the text is read in one go only here."""
    settle_accounts()
    for account in accounts:
        account.release_cache()
        account.reset_peaks()
    return sum(account.held for account in accounts)


def _peaks(accounts: tuple[Account, ...]) -> tuple[int, int]:
    """The most that is allocated on a GPU, and that is reserved on one; without a card nothing is."""
    settle_accounts()
    reserved = (account.peak_reserved for account in accounts if account.allocator is not None)
    return max(account.peak for account in accounts), max(reserved, default=0)
