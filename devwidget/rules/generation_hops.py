"""Hops of a generation: a prompt on the host, for which a library copies each new token to the GPU and each result back."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterator

from devwidget.records.device import DeviceId
from devwidget.records.finding import Claim, Finding, Fix
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Move, Trace
from devwidget.rules.claim_words import words_of
from devwidget.rules.repairs.code import Code, code_at
from devwidget.rules.repairs.edits import Draft, chosen, mended

KIND = "needless-hop"
FEWEST_TURNS = 3
"""There and back: a result that is looked at once is no loop."""
_INPUTS = ("inputs", "input_ids", "inputs_embeds", "attention_mask", "token_type_ids", "encoder_outputs", "pixel_values")


def find_generations(trace: Trace) -> Iterator[Finding]:
    """Lines that call `generate` of a library, in which data goes to a GPU and back again and again."""
    lines: dict[tuple[str, int], list[Move]] = {}
    for move in trace.moves:
        if move.site is not None and move.site.library is not None and move.cause == "explicit":
            lines.setdefault((move.site.file, move.site.line), []).append(move)
    for moves in lines.values():
        site = dataclasses.replace(moves[0].site, library=None) if moves[0].site is not None else None
        for device in {move.target for move in moves if move.target.is_accelerator and move.source.kind == "cpu"}:
            there, back = _count_turns(moves, device)
            if site is not None and min(there, back) >= FEWEST_TURNS and _generations_at(site):
                yield _finding(site, device, there, back)


def _count_turns(moves: list[Move], device: DeviceId) -> tuple[int, int]:
    """How often data went from the host to a device, and back."""
    there = sum(move.count for move in moves if move.source.kind == "cpu" and move.target == device)
    return there, sum(move.count for move in moves if move.source == device and move.target.kind == "cpu")


def _finding(site: Site, device: DeviceId, there: int, back: int) -> Finding:
    claim = Claim("shuttled", call="generate", target=device, count=there, total=back, site=site)
    words = Message("give it inputs on {device}", device=device)
    return Finding(
        kind=KIND,
        severity="info",
        module=None,
        headline=words_of(claim),
        why=Message("each result is put where the prompt is, which is not where the model is, and the host waits for it"),
        fault=site,
        fixes=chosen((mended(site, words, _move_inputs), Fix(words, "inputs.to(model.device)"))),
        claims=(claim,),
    )


def _generations_at(site: Site) -> list[ast.Call]:
    at = code_at(site)
    return list(_generations_in(*at)) if at is not None else []


def _generations_in(code: Code, statement: ast.stmt) -> Iterator[ast.Call]:
    for node in code.parts(statement):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "generate":
            yield node


def _move_inputs(draft: Draft, statement: ast.stmt) -> None:
    """`model.generate(ids.to(model.device))`, and the same for a batch of a tokenizer, `**batch.to(model.device)`."""
    for call in _generations_in(draft.code, statement):
        model = draft.code.text(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        given = [*call.args[:1], *(each.value for each in call.keywords if each.arg is None or each.arg in _INPUTS)]
        batches = [each.value for each in call.keywords if each.arg is None]
        if model.replace(".", "").isidentifier() and all(_is_tokenized(draft.code, statement, each) for each in batches):
            for each in given:
                if isinstance(each, ast.Name | ast.Attribute | ast.Subscript):
                    draft.append(each, f".to({model}.device)")


def _is_tokenized(code: Code, statement: ast.stmt, batch: ast.expr) -> bool:
    """Whether a tokenizer made a batch: a plain dict cannot move itself."""
    scope = code.scope(statement)
    made = [each.value for each in ast.walk(scope) if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) ==
            ast.unparse(batch) and each.lineno < statement.lineno]  # fmt: skip
    return len(made) == 1 and isinstance(made[0], ast.Call) and ast.unparse(made[0].func).endswith(("tokenizer", "processor"))
