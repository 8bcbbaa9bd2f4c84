"""Indices, class targets and masks whose dtype the operator does not take."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import devwidget
from tests.capture.test_autocast_faults import found_in_record
from tests.capture.test_explained import explained, recorded

ALL = pytest.mark.parametrize("told", [recorded, found_in_record, explained])


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def scored(target):
    logits = torch.randn(3, 4, device="cuda", requires_grad=True)
    return nn.CrossEntropyLoss()(logits, target)


@ALL
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32])
def test_class_targets_become_int64(told, dtype):
    target = torch.ones(3, device="cuda").to(dtype)
    found = told(lambda: scored(target))
    assert found.headline.endswith(f"of {str(dtype).removeprefix('torch.')}, and requires int64")
    assert found.fixes[0].code.endswith("scored(target.long())") or "target.long()" in found.fixes[0].code


@ALL
def test_an_embedding_gets_the_index_and_not_the_table_cast(told):
    table = nn.Embedding(4, 2).cuda()
    ids = torch.tensor([0.0, 1.0]).cuda()

    def program():
        return table(ids)

    found = told(program)
    assert (found.kind, found.headline) == ("wrong-dtype", "`embedding` got `ids` of float32, and requires int64")
    assert found.fixes[0].code == "return table(ids.long())"


@ALL
def test_a_computed_mask_is_cast_as_a_whole(told):
    scores, keep = torch.ones(2, 2, device="cuda"), torch.ones(2, 2, device="cuda")

    def program():
        return scores.masked_fill(1 - keep, -1e4)

    found = told(program)
    assert found.headline.endswith("keep` of float32, and requires bool")
    assert found.fixes[0].code == "return scores.masked_fill((1 - keep).bool(), -1e4)"


@ALL
def test_an_attention_mask_of_integers_is_a_mask(told):
    q, keep = torch.ones(1, 2, 4, device="cuda"), torch.ones(2, 2, dtype=torch.long, device="cuda")

    def program():
        return F.scaled_dot_product_attention(q, q, q, attn_mask=keep)

    assert told(program).fixes[0].code == "return F.scaled_dot_product_attention(q, q, q, attn_mask=keep.bool())"


@ALL
def test_an_attention_mask_in_another_precision_is_cast_to_that_of_the_query(told):
    q, bias = torch.ones(1, 2, 4, device="cuda"), torch.zeros(2, 2, device="cuda").half()

    def program():
        return F.scaled_dot_product_attention(q, q, q, attn_mask=bias)

    found = told(program)
    assert found.notes[0] == "`bias` is float16; the others are float32"
    assert "bias.float()" in found.fixes[0].code


def test_an_index_that_carries_a_gradient_is_not_cast():
    order = nn.Linear(2, 1).cuda()(torch.ones(3, 2, device="cuda"))[:, 0]
    found = explained(lambda: torch.ones(3, device="cuda")[order])
    assert not any(fix.edits for fix in found.fixes)


def test_indices_of_int64_and_bool_masks_are_silent():
    with devwidget.record() as recording:
        scored(torch.zeros(3, dtype=torch.long, device="cuda"))
        torch.ones(2, device="cuda").masked_fill(torch.ones(2, dtype=torch.bool, device="cuda"), 0.0)
    assert recording.trace.findings == ()
