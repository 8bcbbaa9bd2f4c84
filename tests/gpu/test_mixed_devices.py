"""What virtual GPUs do is what the card does: tensors of two devices, and short programs."""

import pytest

from tests.gpu import mixed_calls, surface_calls
from tests.gpu.places import ask_both
from tests.gpus.test_card_answers import OTHERWISE
from tests.older_torch import SPARSE, VERSION

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(300)]
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_with_one_tensor_elsewhere_do_what_they_do_on_the_card(part, reports):
    card, virtual = ask_both(mixed_calls.sweep, part, PARTS)
    found = mixed_calls.compare(card, virtual)
    counts = {kind: len(names) for kind, names in found.items()}
    reports(f"{len(card):,} mixed calls, part {part + 1} of {PARTS}; differ: {counts}", calls=len(card), differing=found)
    assert card.keys() ^ virtual.keys() == set()
    assert (found["outcome"].keys() | found["devices"].keys()) - KNOWN == set()


SINCE = {
    "torch.eye(2, device=gpu).to_sparse() @ torch.ones(2, 2)": SPARSE,
    "torch.sparse.mm(torch.eye(2).to_sparse(), o(2, 2))": SPARSE,
    "sparse.mm.reduce[0], argument 0 on cpu": SPARSE,
    "sparse.sampled_addmm[0], argument 0 on cpu": SPARSE,
}
"""What else ends otherwise before torch 2.13."""
KNOWN = OTHERWISE.keys() | (SINCE.keys() if VERSION < (2, 13) else set())
SURFACES = surface_calls.answer_surface, surface_calls.answer_further


@pytest.mark.parametrize("ask", SURFACES)
def test_short_programs_end_as_they_do_on_the_card(ask, reports):
    card, virtual = ask_both(ask)
    found = mixed_calls.compare(card, virtual)
    counts = {kind: len(names) for kind, names in found.items()}
    reports(f"{len(card):,} short programs ({ask.__name__}); differ: {counts}", card=card, differing=found)
    assert found["outcome"].keys() - KNOWN == set()
