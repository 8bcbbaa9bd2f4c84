"""An operand whose birth the source tells: the one torch call that made it."""

from __future__ import annotations

import dataclasses

import torch

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
