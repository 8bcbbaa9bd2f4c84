"""unsafe-async-copy: a copy to the host is read before it has arrived.

Why: with `non_blocking=True` the call returns before the copy is done, and the host does not wait for it.
Bad: `host = out.to('cpu', non_blocking=True)`, then `host.mean()`.
Good: `host = out.to('cpu')`; or `torch.cuda.synchronize()` before the first read.
Source: https://docs.pytorch.org/tutorials/intermediate/pinmem_nonblock.html
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Trace, UserMove
from devwidget.rules.edits.draft import Draft, mended
from devwidget.rules.found import Found, SiteInModule
from devwidget.rules.registry import rule


@rule(
    "unsafe-async-copy",
    "error",
    needs=("operations",),
    why=Message("with `non_blocking=True` the call returns before the copy has finished, and the host does not wait for it"),
)
def check(trace: Trace) -> Iterator[Found]:
    """One finding for each asynchronous copy that was read too early."""
    for crossing in trace.crossings:
        if not crossing.meant and crossing.unsafe_read is not None:
            yield _make_finding(crossing, crossing.unsafe_read)


def _make_finding(crossing: UserMove, used: Site) -> Found:
    facts = {"bytes": crossing.bytes, "source": crossing.source}
    before, wait = Message("synchronize once, before the first read"), f"torch.{crossing.source.kind}.synchronize()"
    return Found(
        SiteInModule(used, crossing.unsafe_module),
        Message("{bytes} bytes from {source} are read on the host while the copy may still be running", **facts),
        birth=crossing.site,
        birth_moves=True,
        fixes=(
            mended(crossing.site, Message("make the copy blocking"), _blocking),
            mended(used, before, _wait_above, wait, confidence="choice", instead=wait),
        ),
    )


def _blocking(draft: Draft, statement: ast.stmt) -> None:
    for node in draft.code.parts(statement):
        if isinstance(node, ast.keyword) and node.arg == "non_blocking":
            draft.replace(node.value, "False")


def _wait_above(draft: Draft, statement: ast.stmt, wait: str) -> None:
    if not getattr(statement, "body", None):
        draft.insert_above(statement, wait)
