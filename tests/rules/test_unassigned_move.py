"""unassigned-move: moves whose result was thrown away."""

import dataclasses

import pytest

from devwidget.records.fault_details import WrongDtype
from tests.rules.builders import CPU, GPU0, fault, findings, is_silent, operand, site

KIND = "unassigned-move"


def moved(statement, dtype="float32", **more):
    weight = operand("weight", dtype=dtype)
    return fault(operand("x", CPU, stray=True, ineffective=site(statement, 11)), weight, call="addmm", **more)


def test_a_move_alone_on_its_line_is_one_finding_and_wrong_device_is_silent(golden):
    (found,) = findings(moved("x.to('cuda:0')"))
    golden(f"{KIND}.txt", found)


@pytest.mark.parametrize(
    ("statement", "code"),
    [
        ("x.cuda", "x = x.cuda()"),
        ("batch['x'].cuda()", "batch['x'] = batch['x'].cuda()"),
        ("[t.cuda() for t in batch]", "batch = [t.cuda() for t in batch]"),
    ],
)
def test_the_result_is_assigned_where_the_line_names_what_it_moves(statement, code):
    (found,) = findings(moved(statement))
    assert found.fixes[0].code == code


def test_a_cast_that_was_thrown_away_wins_over_wrong_dtype():
    (found,) = findings(moved("x.half()", "float16", what="dtype", detail=WrongDtype("float16")))
    assert found.kind == KIND


def test_a_discarded_move_of_a_tensor_that_is_in_the_right_place_is_silent():
    fine = moved("x.to('cuda:0')")
    there = tuple(dataclasses.replace(each, device=GPU0, stray=False) for each in fine.operands)
    assert is_silent(KIND, dataclasses.replace(fine, operands=there))
