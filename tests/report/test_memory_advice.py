"""What a step that found no room is told to change: true of what was measured, and silent where it would not help."""

from __future__ import annotations

from dataclasses import replace

from devwidget.records.explanation import Failure
from devwidget.records.memory import DeviceMemory, Holding, MemoryCurve, MemoryPoint, Refusal
from devwidget.records.trace import Trace
from devwidget.report.text.advice import StepNames, memory_advice
from devwidget.report.text.failure_card import failure_card
from tests.views.builders import GPU0, MIB, one_step, site, wrong_device

LINE = site(41, "y = x @ x")


def full(phase="forward", *, asked=4, samples=10, others=0, **parts):
    """A step on a card of 16 MiB, and what lived there, in MiB, when it found no room."""
    sizes = {role: size * MIB for role, size in parts.items()}
    live = MemoryPoint(20, phase, "decoder", LINE, sum(sizes.values()), **sizes)
    held = (Holding("activations", 3 * MIB, phase, "encoder.layers.0.relu", LINE),)
    refused = Refusal(20, asked * MIB, live.allocated, phase, "decoder", LINE, live, held)
    curve = MemoryCurve(DeviceMemory(GPU0, "", True, 16 * MIB, others=others * MIB), "allocator", (live,), (refused,))
    failure = Failure("OutOfMemoryError", "CUDA out of memory.", LINE, "decoder", out_of_memory=True)
    return Trace(error="OutOfMemoryError: CUDA out of memory.", failure=failure, memory=(curve,), samples=samples)


SUBJECTS = {
    "of gradients from": "gradients",
    "requested": "batch",
    "of activations were kept": "activations",
    "were allocated before": "foreign",
    "of parameters, buffers": "devices",
}
"""Words of an advice -> what it changes."""


def subject_of(advice):
    return next(subject for words, subject in SUBJECTS.items() if words in advice.text)


def about(trace):
    return {subject_of(advice): f"{advice.text} {advice.code}".strip() for advice in memory_advice(trace)}


def test_a_smaller_batch_is_named_in_samples_or_else_as_a_share():
    told = about(full(parameters=4, activations=10))["batch"]
    assert "took 10.0 MiB; the failed allocation requested 4.00 MiB more" in told
    assert "8 of the 10 samples get past this line" in told
    assert told.endswith('devwidget.plan(model, batch, loss_fn=loss_fn, gpus=1, memory="16.0MiB").largest_batch())')
    mine = StepNames("net", "images", "", "labels")
    (code, *_) = [each.code for each in memory_advice(full(parameters=4, activations=10), mine) if subject_of(each) == "batch"]
    assert code == 'print(devwidget.plan(net, images, target=labels, gpus=1, memory="16.0MiB").largest_batch())'
    assert "85 % get past this line" in about(full(parameters=4, activations=10, samples=0))["batch"]


def test_a_model_that_fills_the_card_alone_needs_no_smaller_batch():
    assert (
        "No batch is small enough: 15.0 MiB do not depend on the batch"
        in about(full(parameters=15, inputs=1, asked=20))["batch"]
    )


def test_room_in_pieces_asks_for_no_smaller_batch():
    trace = full(parameters=4, activations=4)
    assert "batch" not in about(trace)
    assert "the rest was in smaller pieces" in failure_card(trace)["message"]


def test_activations_are_worth_a_word_where_they_would_make_the_room():
    assert "3.00 MiB of activations were kept for backward" in about(full(parameters=10, activations=3, asked=4))["activations"]
    assert "activations" not in about(full(parameters=10, activations=3, asked=9))
    assert "activations" not in about(full("optimizer", parameters=10, activations=3))


def test_gradients_of_an_earlier_step_are_told_in_forward_and_not_in_backward():
    told = about(full(parameters=4, gradients=4, activations=5))["gradients"]
    assert told.startswith("4.00 MiB of gradients from an earlier step were still allocated.")
    assert told.endswith("model.zero_grad(set_to_none=True)")
    assert "gradients" not in about(full("backward", parameters=4, gradients=4, activations=5))


def test_other_tensors_are_told_where_they_would_make_the_room():
    told = about(full(parameters=4, foreign=6, activations=4))["foreign"]
    assert told.startswith("6.00 MiB on cuda:0 were allocated before and do not belong to this model.")
    assert "`del`" not in told  # which frees nothing that a list, `Out` or a traceback holds too
    assert "foreign" not in about(full(parameters=12, foreign=1, activations=2))


def test_what_does_not_grow_with_the_batch_asks_for_other_cards():
    told = about(full("optimizer", parameters=5, gradients=5, optimizer=5, asked=5))
    assert list(told) == ["devices"]
    assert told["devices"].startswith("15.0 MiB of parameters, buffers, gradients and optimizer state do not depend on")


def test_a_step_that_had_room_and_a_file_of_an_older_version_have_no_advice():
    assert memory_advice(one_step()) == ()
    trace = full(parameters=4, activations=10)
    (curve,) = trace.memory
    older = replace(curve, refused=(replace(curve.refused[0], live=None, holdings=()),))
    assert memory_advice(replace(trace, memory=(older,))) == ()


def test_the_card_has_who_held_most_then_and_the_cures_and_the_text_has_them_too():
    trace = full(parameters=4, activations=10)
    card = failure_card(trace)
    assert (
        card["notes"][0]
        == "live on cuda:0 at that time: 3.00 MiB activations of `encoder.layers.0.relu`, train.py:41  `y = x @ x`"
    )
    assert [cure["text"].split()[-2:] for cure in card["cures"]] == [["running", "it:"], ["keeps", "none."]]
    text = str(trace)
    assert "  help:  The batch and the tensors computed from it took 10.0 MiB" in text
    block = "model.encoder.layers[0].forward"
    assert f"{block} = functools.partial(torch.utils.checkpoint.checkpoint, {block}, use_reentrant=False)" in text


def test_without_a_block_there_is_no_line_to_checkpoint_it():
    trace = full(parameters=4, activations=10)
    (curve,) = trace.memory
    alone = replace(curve.refused[0], holdings=(Holding("activations", MIB, "forward", "head", LINE),))
    (advice,) = [
        each
        for each in memory_advice(replace(trace, memory=(replace(curve, refused=(alone,)),)))
        if subject_of(each) == "activations"
    ]
    assert advice.code == ""


def test_an_exception_on_the_line_of_a_finding_has_its_cure():
    failure = Failure("RuntimeError", "mixed", wrong_device().fault, "decoder.head")
    trace = replace(one_step(), error="RuntimeError: mixed", failure=failure)
    (cure,) = failure_card(trace)["cures"]
    assert cure == {
        "text": "move the smaller side, 16 KiB against 1.95 MiB",
        "code": 'hidden = hidden.to("cuda:1")',
        "samples": 0,
    }
