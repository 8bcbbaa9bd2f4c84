"""state-dict-prefix: keys of a wrapped model in a plain one, and the other way round."""

from devwidget.records.fault_details import WrongPrefix
from tests.rules.builders import CPU, META, fault, findings, operand, site

KIND = "state-dict-prefix"
LOADED = site("plain.load_state_dict(saved, strict=False)", 9, "train")


def loaded(key, right, **more):
    detail = WrongPrefix("Net", key, right, 4, 4)
    return fault(what="checkpoint", call="load_state_dict", module=None, phase="build", site=LOADED, target=None, error="",
                 expression="saved", detail=detail, **more)  # fmt: skip


def test_keys_with_the_prefix_for_a_plain_model_are_one_finding(golden):
    saved = site("saved = parallel.state_dict()", 7, "train")
    (found,) = findings(loaded("module.head.weight", "head.weight", birth=saved))
    golden(f"{KIND}.txt", found)


def test_plain_keys_for_a_wrapped_model_are_one_finding(golden):
    (found,) = findings(loaded("head.weight", "module.head.weight"))
    golden(f"{KIND}-missing.txt", found)


def test_a_checkpoint_without_a_name_or_a_line_still_has_a_fix():
    (found,) = findings(fault(what="checkpoint", detail=loaded("module.w", "w").detail))
    assert found.fixes[0].code == "checkpoint = {key.removeprefix('module.'): value for key, value in checkpoint.items()}"


def test_a_checkpoint_that_meets_a_model_without_data_is_another_kind():
    found = findings(fault(operand("weight", META, stray=True), operand("x", CPU), what="meta", call="load_state_dict"))
    assert [each.kind for each in found] == ["meta-tensor"]
