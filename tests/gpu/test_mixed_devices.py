"""What virtual GPUs do is what the card does: tensors of two devices, short programs, and assertions of kernels."""

import pytest

from tests.gpu import mixed_calls, surface_calls
from tests.gpu.places import ASSERTING, HAS_CARD, ask, ask_both

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(300)]
PARTS = 8


@pytest.mark.parametrize("part", range(PARTS))
def test_operators_with_one_tensor_elsewhere_do_what_they_do_on_the_card(part, reports):
    card, virtual = ask_both(mixed_calls.sweep, part, PARTS)
    found = mixed_calls.compare(card, virtual)
    counts = {kind: len(names) for kind, names in found.items()}
    reports(f"{len(card):,} mixed calls, part {part + 1} of {PARTS}; differ: {counts}", calls=len(card), differing=found)
    assert card.keys() == virtual.keys()
    assert {kind: found[kind] for kind in ("outcome", "devices")} == {"outcome": {}, "devices": {}}


@pytest.mark.parametrize("ask", [surface_calls.answer_surface, surface_calls.answer_deterministic])
def test_short_programs_end_as_they_do_on_the_card(ask, reports):
    card, virtual = ask_both(ask)
    found = mixed_calls.compare(card, virtual)
    counts = {kind: len(names) for kind, names in found.items()}
    reports(f"{len(card):,} short programs ({ask.__name__}); differ: {counts}", card=card, differing=found)
    assert found["outcome"] == {}


@pytest.mark.parametrize("call", surface_calls.read_calls("asserts"))
def test_assertions_of_kernels_are_told(call, reports):
    card, virtual = ask_both(surface_calls.answer_assertion, call)
    reports(f"`{call}`: {card[0]}, then {card[1]}, then {card[2]}; virtual: {virtual[0]}", card=card, virtual=virtual)
    assert "raises" in virtual[0]
    assert not HAS_CARD or ask(ASSERTING, surface_calls.answer_assertion, call) == card
