"""Advice about DataParallel: its numbers, and silence where it would not be true."""

from dataclasses import replace

from devwidget.report.text.advice import parallel_advice
from devwidget.report.text.parallel_words import card_words, parallel_summary, parallel_words
from devwidget.views.parallel import parallel_calls
from tests.views.builders import CPU, GIB, GPU0, GPU1, MIB, data_parallel


def call_of(trace, **changes):
    (call,) = parallel_calls(replace(trace, parallel=(replace(trace.parallel[0], **changes),)))
    return call


def texts(trace, about, **changes):
    return [each.text for each in parallel_advice(call_of(trace, **changes)) if each.about == about]


def with_memory(trace, **changes):
    ends = [curve.end for curve in trace.memory]
    ends = [replace(end, **{name: values[end.device.index] for name, values in changes.items()}) for end in ends]
    return replace(trace, memory=tuple(replace(curve, end=end) for curve, end in zip(trace.memory, ends, strict=True)))


def test_a_batch_that_leaves_gpus_idle_names_them_and_the_sizes_that_fill_them():
    assert texts(data_parallel(8, samples=9), "batch") == [
        "Torch splits the batch into chunks of 2, so 9 samples use 5 of 8 GPUs; cuda:5, cuda:6, cuda:7 got none."
        " A batch of 8 or 16 uses all of them."
    ]
    assert texts(data_parallel(4, samples=3), "batch") == [
        "3 samples use 3 of 4 GPUs; cuda:3 got none. A batch of 4 uses all of them."
    ]


def test_an_uneven_last_part_is_told_and_a_slightly_smaller_one_is_not():
    (text,) = texts(data_parallel(4, samples=10), "batch")
    assert text.startswith("cuda:3 got 1 sample, the others up to 3: it waits for them. A batch of 8 or 12 is split evenly.")
    assert texts(data_parallel(2, samples=63), "batch") == []
    assert texts(data_parallel(4, samples=64), "batch") == []


def test_a_large_output_asks_for_the_loss_inside_forward():
    (text,) = texts(data_parallel(2, samples=64), "loss")
    assert text == (
        "Compute the loss inside `forward` and return it: 2 numbers are gathered on cuda:0 instead of 2.44 MiB, and the loss"
        " is computed on the GPU that has the outputs."
    )
    assert "differ in size" in texts(data_parallel(2, samples=63), "loss")[0]


def test_memory_that_ran_out_before_the_loss_is_told_and_counts_as_training():
    text = "CUDA out of memory. Tried to allocate 64.00 MiB. GPU 0 has 26.13 MiB free. Including non-PyTorch memory, this"
    broken = replace(data_parallel(2, samples=64), error=f"OutOfMemoryError: {text}")
    changes = {"backward": False, "with_grad": True}
    assert [each.about for each in parallel_advice(call_of(broken, **changes))][:1] == ["loss"]
    words = parallel_words(call_of(broken, **changes))
    assert f"The step ended with OutOfMemoryError: {text.partition(' Including')[0]}" in words
    assert parallel_advice(call_of(replace(broken, error="ValueError: no"), **changes)) == ()


def test_another_gather_point_is_named_only_where_it_has_room():
    roomy = with_memory(data_parallel(2, samples=64), peak=(20 * MIB, 6 * MIB))
    (text,) = texts(roomy, "output_device")
    assert "`output_device=1` gathers the 2.44 MiB on cuda:1, whose peak is 6.00 MiB instead of 20.0 MiB" in text
    assert texts(with_memory(data_parallel(2), peak=(9 * MIB, 8 * MIB)), "output_device") == []


def test_the_larger_gpu_should_come_first():
    trace = with_memory(data_parallel(3), total=(12 * GIB, 24 * GIB, 12 * GIB))
    (found,) = (each for each in parallel_advice(call_of(trace)) if each.about == "device_ids")
    assert (
        found.text
        == "cuda:0 does the most work and has 12.0 GiB; cuda:1 has 24.0 GiB. Name cuda:1 first and move the model there."
    )
    assert found.code == 'nn.DataParallel(model.to("cuda:1"), device_ids=[1, 0, 2])'
    assert texts(data_parallel(3), "device_ids") == []


def test_distributed_saves_the_parameters_and_not_the_buffers():
    (text,) = texts(data_parallel(3), "ddp")
    assert "avoids copying 4.00 MiB of parameters at every forward" in text
    assert texts(data_parallel(3), "ddp", backward=False) == []


def test_words_name_the_order_and_another_output_device():
    call = call_of(data_parallel(2), device_ids=(GPU1, GPU0), output_device=GPU0)
    words = " ".join(parallel_words(call))
    assert "`device_ids` begins with cuda:1: the model is there" in words
    assert "`output_device` is cuda:0: outputs are gathered there, not on cuda:1" in words
    assert "begins with" not in " ".join(parallel_words(call_of(data_parallel(2))))


def test_cards_that_the_machine_numbers_differently_stand_beside_torchs_names():
    trace = with_memory(data_parallel(2), card=(2, 3), uuid=("1a2b3c4d-77", "5e6f7a8b-99"), virtual=(False, True))
    words = " ".join(parallel_words(call_of(trace)))
    assert "cuda:0 is GPU 2 (UUID 1a2b3c4d…), cuda:1 is GPU 3 (UUID 5e6f7a8b…)" in words
    assert card_words(call_of(trace), GPU0) == "GPU 2, virtual GPU"
    assert card_words(call_of(trace), GPU1) == "GPU 3"
    assert card_words(call_of(trace), CPU) == ""
    assert "numbers its GPUs" not in " ".join(parallel_words(call_of(data_parallel(2))))


def test_one_gpu_is_said_to_cut_nothing():
    (call,) = parallel_calls(replace(data_parallel(1), replicas=()))
    assert parallel_summary(call).startswith("device_ids has one GPU, cuda:0: the module is called directly")
    assert parallel_words(call) == []
    assert parallel_advice(call) == ()
