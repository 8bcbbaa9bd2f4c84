"""Words about DataParallel: numbers, and silence where it would not be true."""

from dataclasses import replace

from devwidget.report.text.parallel_words import card_words, parallel_summary, parallel_words
from devwidget.views.parallel import parallel_calls
from tests.views.builders import CPU, GPU0, GPU1, data_parallel


def call_of(trace, **changes):
    (call,) = parallel_calls(replace(trace, parallel=(replace(trace.parallel[0], **changes),)))
    return call


def with_memory(trace, **changes):
    ends = [curve.end for curve in trace.memory]
    ends = [replace(end, **{name: values[end.device.index] for name, values in changes.items()}) for end in ends]
    return replace(trace, memory=tuple(replace(curve, end=end) for curve, end in zip(trace.memory, ends, strict=True)))


def test_words_name_the_order_and_another_output_device():
    call = call_of(data_parallel(2), device_ids=(GPU1, GPU0), output_device=GPU0)
    words = " ".join(parallel_words(call))
    assert "`device_ids` begins with cuda:1: the model is there" in words
    assert "`output_device` is cuda:0: outputs are gathered there, not on cuda:1" in words
    assert "begins with" not in " ".join(parallel_words(call_of(data_parallel(2))))


def test_cards_have_the_number_of_the_machine():
    trace = with_memory(data_parallel(2), card=(2, 3), uuid=("1a2b3c4d-77", "5e6f7a8b-99"), virtual=(False, True))
    assert card_words(call_of(trace), GPU0) == "GPU 2, virtual GPU"
    assert card_words(call_of(trace), GPU1) == "GPU 3"
    assert card_words(call_of(trace), CPU) == ""


def test_one_gpu_is_said_to_cut_nothing():
    (call,) = parallel_calls(replace(data_parallel(1), replicas=()))
    assert parallel_summary(call).startswith("device_ids has one GPU, cuda:0: the module is called directly")
    assert list(parallel_words(call)) == []
