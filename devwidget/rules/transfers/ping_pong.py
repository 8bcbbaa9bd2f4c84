"""ping-pong: data crosses between the same two devices again and again.

Why: each crossing waits for the computation before it, so neither device is ever busy for long.
Bad: layers dealt out to two GPUs in turn.
Good: the first half of the layers on one GPU, the second half on the other: one crossing.
Source: https://docs.pytorch.org/tutorials/intermediate/model_parallel_tutorial.html
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Claim, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.trace import Crossing, Trace
from devwidget.rules.claim_words import words_of
from devwidget.rules.registry import rule
from devwidget.rules.repairs.code import code_at
from devwidget.rules.repairs.edits import Draft, chosen, fix
from devwidget.rules.transfers.needless_hop import stay

ENOUGH = 3
"""Crossings of one chain of data: one excursion there and back is two, and may be meant."""


@rule("ping-pong", needs=("forward",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each pair of devices and forward pass, at the line that crosses most often."""
    known = {crossing.number: crossing for crossing in trace.crossings}
    longest: dict[tuple[object, ...], list[Crossing]] = {}
    for crossing in trace.crossings:
        pair = frozenset((crossing.source, crossing.target))
        chain = [c for c in (*(known[n] for n in crossing.chain if n in known), crossing) if _belongs(c, crossing, pair)]
        computed = all(c.computed for c in chain[:-1])
        if len(chain) >= ENOUGH and computed and len(chain) > len(longest.get((pair, crossing.step), [])):
            longest[pair, crossing.step] = chain
    for chain in longest.values():
        yield _finding(chain)


def _belongs(other: Crossing, last: Crossing, pair: frozenset[object]) -> bool:
    same_pass = other.step == last.step and other.phase == "forward"
    return same_pass and not other.meant and frozenset((other.source, other.target)) == pair


def _finding(chain: list[Crossing]) -> Finding:
    sites = [crossing.site for crossing in chain]
    fault = max(reversed(sites), key=sites.count)  # of a way out and a way back the way back
    first, total = chain[0], sum(crossing.bytes for crossing in chain)
    pair = tuple(sorted((first.source, first.target)))
    claim = Claim("chained", devices=pair, count=len(chain), bytes=total, site=fault)
    return Finding(
        kind="ping-pong",
        severity="warning",
        module=next(c.module for c in chain if c.site == fault),
        headline=words_of(claim),
        why=Message("each crossing waits for the computation before it, so neither device is busy for long"),
        fault=fault,
        birth=chain[0].site if chain[0].site != fault else None,
        fixes=chosen(
            (
                _stay(chain),
                Fix(
                    Message("group the layers: consecutive ones on the same device, so that the data crosses once"),
                    "",
                    "likely",
                ),
            )
        ),
        claims=(claim,),
        cause=f"{pair[0]}, {pair[1]} at {fault}",
    )


def _stay(chain: list[Crossing]) -> Fix | None:
    """Where the way goes over the host: the lines that leave the GPU, without their `.cpu()`."""
    drafts: dict[str, Draft] = {}
    for crossing in chain:
        at = code_at(crossing.site) if str(crossing.target) == "cpu" else None
        if at is not None:
            stay(drafts.setdefault(at[0].file, Draft(at[0])), at[1], crossing)
    return fix(Message("stay on the GPU"), next(iter(drafts.values())), "likely") if len(drafts) == 1 else None
