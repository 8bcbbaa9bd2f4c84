"""unsafe-async-copy: a copy to the host is read before it has arrived, or what is copied is overwritten before it has left.

Why: with `non_blocking=True` the call returns while the bytes are still under way; nothing on the host waits for them.
Bad: `host = out.to('cpu', non_blocking=True)`, then `host.mean()`; `x = pinned.to('cuda', non_blocking=True)`, then
`pinned.copy_(batch)`.
Good: `host = out.to('cpu')`; or `torch.cuda.synchronize()` before the first read.
Source: https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from devwidget.records.device import DeviceId
from devwidget.records.finding import Claim, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Trace, UserMove
from devwidget.rules.claim_words import words_of
from devwidget.rules.registry import rule
from devwidget.rules.repairs.edits import Draft, chosen, mended


@rule("unsafe-async-copy", needs=("operations",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each asynchronous copy that was read too early, or whose source was overwritten too early."""
    for crossing in trace.crossings:
        if crossing.meant:
            continue
        if crossing.unsafe_read is not None:
            early = Claim("early", bytes=crossing.bytes, source=crossing.source, site=crossing.site)
            yield _make_finding(crossing, early, crossing.source, crossing.unsafe_read)
        elif crossing.overwritten is not None:
            lost = Claim("overwritten", bytes=crossing.bytes, target=crossing.target, site=crossing.site)
            yield _make_finding(crossing, lost, crossing.target, crossing.overwritten)


def _make_finding(crossing: UserMove, claim: Claim, device: DeviceId, used: Site) -> Finding:
    wait = f"torch.{device.kind}.synchronize()"
    before = (
        Message("wait once, before the first read")
        if claim.kind == "early"
        else Message("wait before the memory is written again, or write into another tensor in turn")
    )
    return Finding(
        kind="unsafe-async-copy",
        severity="error",
        module=crossing.unsafe_module,
        headline=words_of(claim),
        claims=(claim,),
        why=Message("with `non_blocking=True` the copy returns at once, and nothing on the host waits for it"),
        fault=used,
        birth=crossing.site,
        fixes=chosen(
            (
                mended(crossing.site, Message("let the copy block"), _blocking),
                mended(used, before, _waiting(wait), "choice") or Fix(before, wait, "choice"),
            )
        ),
    )


def _blocking(draft: Draft, statement: ast.stmt) -> None:
    for node in draft.code.parts(statement):
        if isinstance(node, ast.keyword) and node.arg == "non_blocking":
            draft.replace(node.value, "False")


def _waiting(wait: str) -> Callable[[Draft, ast.stmt], None]:
    def change(draft: Draft, statement: ast.stmt) -> None:
        if not getattr(statement, "body", None):
            draft.insert_above(statement, wait)

    return change
