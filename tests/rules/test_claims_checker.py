"""Claims are held against the trace: each of them can fail, and what fails is not said."""

import dataclasses
from unittest import mock

import pytest

from devwidget.records.finding import Claim
from devwidget.records.trace import CopyCheck, FaultDetails, Held, Move, OpEvent, Promotion
from devwidget.rules import claims_checker
from devwidget.rules.registry import judge
from devwidget.rules.wording import about
from tests.rules.builders import CPU, GPU0, GPU1, META, attribute, chain, crossing, fault, findings, operand, site, step, wait
from tests.strict_claims import Unfounded, quietly

MADE = site("h = torch.zeros(2, 3)", 19)
BORN = {"stray": True, "birth": MADE, "birth_call": "torch.zeros(2, 3)", "birth_op": "zeros", "birth_direct": True}
MET = fault(operand("x"), operand("h", CPU, **BORN))


def problem(claim, *faults, **more):
    return claims_checker.Evidence(step(faults=faults, **more)).refutes(claim)


def ran(place, output):
    return OpEvent("zeros", "block", "forward", place, (), output)


def moved(place, source, target, cause="explicit"):
    return Move(source, target, 24, (2, 3), "float32", None, "forward", place, cause)


def test_what_was_made_on_a_line_is_borne_out_by_what_came_out_there():
    claim = about("made", MET, MET.operands[1], target=GPU0, by="torch.zeros(2, 3)", site=MADE)
    assert problem(claim, MET) == ""
    assert problem(claim, MET, ops=(ran(MADE, CPU),)) == ""
    assert "nothing came out on cpu" in problem(claim, MET, ops=(ran(MADE, GPU0),))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"device": GPU1}, "it was on cpu"),
        ({"name": "k[0]"}, "no tensor 'k[0]'"),
        ({"target": GPU1}, "none of the others was on cuda:1"),
        ({"site": site("h = 1", 7)}, "no line is known"),
        ({"site": None}, "no line is known"),
        ({"by": "x.cpu()"}, "moves what there was"),
        ({"fault": 7}, "no such fault"),
    ],
)
def test_a_claim_with_a_wrong_field_is_refuted(change, words):
    claim = about("made", MET, MET.operands[1], target=GPU0, by="torch.zeros(2, 3)", site=MADE)
    assert words in problem(dataclasses.replace(claim, **change), MET)


def test_a_name_that_stands_in_no_line_is_not_said():
    hidden = dataclasses.replace(MET, site=site("y = f(x)", 20), operands=(operand("x"), operand("h", CPU, stray=True)))
    claim = about("lies", hidden, hidden.operands[1], target=GPU0)
    assert (claim.name, claim.argument) == ("", "h")
    assert "nothing is called 'h'" in problem(dataclasses.replace(claim, name="h", argument=""), hidden)


def test_a_move_has_its_crossing():
    line = site("h = h.to(d)", 19)
    met = fault(operand("x"), operand("h", CPU, stray=True, birth=line, from_move=True))
    claim = about("moved", met, met.operands[1], target=GPU0, site=line)
    assert problem(claim, met, moves=(moved(line, GPU0, CPU),)) == ""
    assert "nothing went to cpu" in problem(claim, met, moves=(moved(line, CPU, GPU1),))


def test_a_move_before_the_recording_names_no_other_device():
    met = fault(operand("x"), operand("h", GPU1, stray=True, birth=site("h = h.to('cuda:2')", 19), from_move=True))
    claim = about("moved", met, met.operands[1], target=GPU0, site=met.operands[1].birth)
    assert "the line names cuda:2" in problem(claim, met)


def test_a_repair_takes_the_tensor_from_where_it_was():
    claim = about("lies", MET, MET.operands[1], target=GPU0)
    assert problem(claim, MET, moves=(moved(MET.site, CPU, GPU0, "healed"),)) == ""
    assert "nothing taken from cpu" in problem(claim, MET, moves=(moved(MET.site, GPU1, GPU0, "healed"),))


def kept(**held):
    known = dataclasses.replace(attribute("mask", "self.mask = torch.ones(3)"), **held)
    return fault(operand("x"), operand("self.mask", CPU, stray=True, held=known))


def test_a_tensor_stayed_only_where_the_model_was_seen_to_go():
    stayed = Claim("stayed", 0, name="block.mask", device=CPU, target=GPU0, site=kept().operands[1].held.went)
    assert problem(stayed, kept()) == ""
    assert "nobody has seen the model go" in problem(dataclasses.replace(stayed, site=None), kept(went=None))
    assert "no parameter or buffer of the model is on cuda:0" in problem(stayed, kept(model_devices=(CPU,)))
    assert "nothing went to cuda:0" in problem(stayed, kept(), moves=(moved(stayed.site, CPU, GPU1),))


def test_the_weaker_sentence_takes_the_place_of_the_stronger():
    headlines = [findings(each)[0].headline for each in (kept(), kept(went=None), kept(went=None, model_devices=()))]
    assert headlines == [
        "`block.mask` stayed on cpu when the model went to cuda:0",
        "`block.mask` is on cpu, the model on cuda:0",
        "`block.mask` is on cpu; the others are on cuda:0",
    ]


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (Claim("given", 0, call="add", devices=(GPU0, GPU1)), "it had tensors on cpu, cuda:0"),
        (Claim("given", 0, call="add", devices=(GPU0,)), "it had tensors on"),
        (Claim("needed", 0, call="mul", devices=(CPU,), target=GPU0), "was another"),
        (Claim("mixed", 0, call="add", dtypes=("float16", "float32")), "it had float32"),
        (Claim("registered", 0, name="block.mask", device=CPU), "no module has registered it"),
        (Claim("assigned", 0, name="mask", owner="Other", how="attribute"), "no `Other` keeps it"),
        (Claim("assigned", 0, name="mask", owner="Block", how="attribute", site=site("self.x = 1")), "assigns no 'mask'"),
        (Claim("discarded", 0, call="add", site=site("x.to(d)")), "no such line"),
        (Claim("remained", 0, name="self.mask", device=GPU1), "it was not on cuda:1"),
        (Claim("empty", 0, name="block.mask", device=CPU), "it has data"),
        (Claim("untrained", 0, name="block.mask"), "not seen to get gradients"),
        (Claim("shared", 0, name="block.mask", device=CPU, others=("a.w",)), "no other module holds it"),
        (Claim("copied", 0, name="block.mask", device=CPU, others=("a.w",)), "no other module holds it"),
        (Claim("typed", 0, name="self.mask", dtype="float32", wanted="float16"), "none of the others was float16"),
        (Claim("promotes", 0, name="self.mask", dtype="float32", call="add"), "no call was seen to promote"),
        (Claim("promoted", 0, name="self.mask", dtype="float32", by="mul"), "no operator was seen"),
        (Claim("cast", 0, name="self.mask", dtype="float16"), "it was float32"),
    ],
    ids=lambda value: value.kind if isinstance(value, Claim) else "",
)
def test_every_kind_can_be_refuted(claim, words):
    assert words in problem(claim, kept())


def test_copies_are_claimed_with_their_crossings():
    trips = chain(GPU0, CPU, GPU1)
    back = dataclasses.replace(trips[1], direct_from=0)
    way = Claim("crossed", devices=(GPU0, CPU, GPU1), bytes=64, site=back.site)
    assert problem(way, crossings=(trips[0], back)) == ""
    assert "untouched" in problem(way, crossings=trips)
    copied = crossing(0, CPU, GPU0)
    known = {"source": CPU, "target": GPU0, "site": copied.site}
    assert problem(Claim("repeated", bytes=64, **known), crossings=(copied,)) == ""
    assert "no such copy" in problem(Claim("filled", bytes=65, **known), crossings=(copied,))


def test_a_promotion_is_what_the_tensor_says_of_it():
    since = Promotion(MADE, "mul", "bfloat16")
    met = fault(operand("x", dtype="bfloat16"), operand("h", stray=True, promotion=since, birth=MADE), what="dtype")
    claim = about("promoted", met, met.operands[1], dtype="float32", by="mul", wanted="bfloat16", site=MADE)
    assert problem(claim, met) == ""
    assert "no operator" in problem(dataclasses.replace(claim, wanted="int64"), met)


def test_a_tensor_with_data_is_not_called_empty():
    met = fault(operand("x"), operand("h", META, stray=True), what="meta")
    assert problem(about("empty", met, met.operands[1]), met) == ""


def test_of_a_finding_an_unfounded_note_is_left_out_and_an_unfounded_headline_is_none():
    (found,) = findings(MET)
    with mock.patch.object(claims_checker, "is_borne_out", quietly):
        false = dataclasses.replace(found.claims[1], name="k[0]")
        noted = dataclasses.replace(found, notes=(claims_checker.words_of(false),), claims=(found.claims[0], false))
        (kept_one,), left_out = claims_checker.without_unfounded(step(faults=(MET,)), [noted])
        assert (kept_one.notes, kept_one.claims, left_out) == ((), found.claims[:1], [])
        other = dataclasses.replace(found.claims[0], devices=(GPU0, GPU1))
        headed = dataclasses.replace(found, headline=claims_checker.words_of(other), claims=(other,))
        nothing, left_out = claims_checker.without_unfounded(step(faults=(MET,)), [headed])
        assert (nothing, left_out) == ([], ["wrong-device: what it would say is not borne out by what was seen"])


def test_in_tests_an_unfounded_claim_fails():
    (found,) = findings(MET)
    false = dataclasses.replace(found, claims=(dataclasses.replace(found.claims[1], device=GPU1),))
    with pytest.raises(Unfounded, match="it was on cpu, not on cuda:1"):
        claims_checker.without_unfounded(step(faults=(MET,)), [false])


def test_what_a_trace_finds_keeps_its_claims():
    trace = judge(step(faults=(fault(operand("x"), operand("h", CPU, stray=True, held=Held(None, "h", "global"))),)))
    assert [claim.kind for claim in trace.findings[0].claims] == ["given", "lies"]


def met(what, **more):
    return fault(operand("w", CPU, stray=True), what=what, **more)


ADAGRAD = met("optimizer", details=FaultDetails("state", "Adagrad", state="sum"))
ADAM = met("optimizer", details=FaultDetails("missing", "Adam"))
WRAPPER = met("parallel", details=FaultDetails(device_ids=(2, 3), found=(CPU,)))
SCALAR = met("io", details=FaultDetails("scalar", owner="Net", replicas=2))
AXIS = met("io", details=FaultDetails("axis", dim=0, batch=8))
FEW = met("io", details=FaultDetails("samples", samples=1, replicas=2))
WRITTEN = met("replica", details=FaultDetails("write", attribute="calls"))
LOADED = met("checkpoint", details=FaultDetails(owner="Net", key="module.w", right="w", count=4, total=4))
OF_FAULTS = {
    "kept": (ADAGRAD, {"owner": "Adagrad", "name": "sum", "device": CPU, "target": GPU0}, {"device": GPU0}),
    "omitted": (ADAM, {"owner": "Adam", "others": ("w",)}, {"others": ("b",)}),
    "wrapped": (WRAPPER, {"numbers": (2, 3), "devices": (CPU,)}, {"devices": (GPU0,)}),
    "outside": (WRAPPER, {"argument": "w", "device": CPU, "target": GPU0}, {"device": GPU1}),
    "gathered": (SCALAR, {"owner": "Net", "count": 2}, {"count": 3}),
    "cut": (AXIS, {"numbers": (2, 3), "count": 0, "total": 8}, {"numbers": (3, 2)}),
    "starved": (FEW, {"count": 1, "total": 2}, {"count": 2}),
    "lost": (WRITTEN, {"name": "calls"}, {"name": "steps"}),
    "bare": (met("replica", details=FaultDetails("parameters")), {}, {"fault": 7}),
    "prefixed": (LOADED, {"owner": "Net", "name": "w", "others": ("module.w",), "count": 4, "total": 4}, {"count": 3}),
    "nowhere": (met("device", requested="gpu", available=("cpu",)), {"name": "gpu", "others": ("cpu",)}, {"name": "cpu"}),
    "lacking": (met("kernel", call="inv"), {"call": "inv", "target": GPU0, "dtype": "float32"}, {"dtype": "float16"}),
    "computed": (met("leaf", call="grad"), {"name": "w", "call": "grad"}, {"name": "h"}),
}


@pytest.mark.parametrize("kind", OF_FAULTS)
def test_what_is_told_of_a_fault_is_what_was_met(kind):
    seen, fields, wrong = OF_FAULTS[kind]
    claim = Claim(kind, seen.number, **fields)
    assert problem(claim, seen) == ""
    assert problem(dataclasses.replace(claim, **wrong), seen) != ""


def test_a_wait_is_told_with_its_device_line_and_number():
    waited = wait(count=3)
    claim = Claim("waits", name="loss.item()", device=waited.device, count=3, site=waited.site)
    assert problem(claim, waits=(waited,)) == ""
    for wrong in ({"count": 4}, {"device": CPU}, {"total": 9}, {"name": "other.item()"}, {"site": MADE}):
        assert problem(dataclasses.replace(claim, **wrong), waits=(waited,)) != ""


def test_a_chain_of_crossings_is_told_with_their_number_and_bytes():
    crossings = chain(GPU0, GPU1, GPU0, GPU1)
    claim = Claim("chained", devices=(GPU0, GPU1), count=3, bytes=sum(each.bytes for each in crossings))
    assert problem(claim, crossings=crossings) == ""
    assert problem(dataclasses.replace(claim, count=4), crossings=crossings) != ""


def test_an_early_read_and_damaged_copies_were_seen():
    copied = crossing(1, GPU0, CPU, unsafe_read=MADE)
    early = Claim("early", bytes=copied.bytes, source=GPU0, site=copied.site)
    assert (problem(early, crossings=(copied,)), problem(early) != "") == ("", True)
    check = CopyCheck(0, GPU0, GPU1, 64, None, "forward", MADE, 9, 2, "no")
    for kind, told in (("changed", {"count": 2, "total": 9}), ("linked", {"how": "no"})):
        claim = Claim(kind, source=GPU0, target=GPU1, **told)
        assert problem(claim, copy_checks=(check,)) == ""
        assert problem(dataclasses.replace(claim, target=CPU), copy_checks=(check,)) != ""
