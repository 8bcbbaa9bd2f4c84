"""An operand whose birth the source tells: the one torch call that made or moved it."""

from __future__ import annotations

import dataclasses

import torch

from devwidget.capture.source_code.gradient_functions import MoveInForward
from devwidget.capture.source_code.past.decisions import Maker
from devwidget.capture.source_code.past.past_calls import PastCall
from devwidget.records.trace import Operand


def made_by(operand: Operand, made: list[Maker], target: torch.device, at_hand: tuple[str, ...] = ()) -> Operand:
    """The operand, with the one call that made it.

    Args:
        operand: what is known of it so far.
        made: the calls that may have made it; if they stand on several lines it stays as it is.
        target: where it should have been.
        at_hand: tensors that are there, as the failing line writes them.
    """
    sites = {each.site for each in made}
    if len(sites) != 1:
        return operand
    one = made[0]
    partners = one.partners(target) if isinstance(one.scope, PastCall) else at_hand
    alone = len({each.call for each in made}) == 1
    return dataclasses.replace(
        operand,
        birth=one.site,
        birth_call=one.call if alone else "",
        birth_op=one.op if alone else "",
        birth_direct=alone,
        birth_partner=next(iter(partners), ""),
        birth_partners=partners,
    )


def moved_by(operand: Operand, move: MoveInForward) -> Operand:
    """The operand, with the move in `forward` that took along to where it is all that backward computes with."""
    return dataclasses.replace(
        operand, birth=move.site, birth_call=move.call, birth_op=move.method, birth_direct=True, from_move=True
    )
