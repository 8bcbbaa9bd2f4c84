"""What records print."""

from dataclasses import replace

import pytest

import devwidget.report  # noqa: F401  registers the words
from devwidget.language.speaking import set_language
from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.memory import DeviceMemory, MemoryCurve, MemoryPoint, Refusal
from devwidget.records.site import Site
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.trace import OpEvent, Trace, Wait
from devwidget.report.page.cards import finding_card
from devwidget.report.style.safe_text import columns_of
from devwidget.report.style.words import file_words, tensor_words
from devwidget.report.text.snapshot_text import snapshot_text
from tests.views.builders import GPU0, GPU1, data_parallel, one_step, site, split_model, tensor, unregistered, wrong_device


def test_a_finding_prints_as_a_compiler_would():
    assert str(wrong_device()) == (
        "error[wrong-device] `addmm` was given tensors from cuda:0 and cuda:1\n"
        "  where: decoder.head, train.py:41      input f32[8, 512] cuda:0  |  weight f32[1000, 512] cuda:1\n"
        "  why:   a kernel runs on one device, and operands are not copied for you\n"
        "  note:  `decoder.head` was moved to cuda:1 at train.py:17; the layer before it stayed on cuda:0\n"
        '  help:  (likely) move the smaller side, 16 KiB against 1.95 MiB:  hidden = hidden.to("cuda:1")'
    )


def test_birth_and_further_places_become_notes():
    text = str(unregistered())
    assert "  note:  placed at train.py:18: self.mask = torch.ones(1024, 1024, dtype=torch.bool)\n" in text
    assert "  note:  the same in `encoder.attention.mask`\n" in text
    assert "  help:  (sure, verified) in `__init__`, write:  self.register_buffer" in text


def test_a_page_says_what_verified_means():
    verified, untried = finding_card(unregistered(), 0)["fixes"][0], finding_card(wrong_device(), 0)["fixes"][0]
    assert verified["confidence"] == "sure, verified: the step ran with this edit"
    assert untried["confidence"] == "likely"


def test_a_fix_of_several_lines_stands_below_its_summary():
    finding = replace(wrong_device(), fixes=(Fix("write", "a = 1\nb = 2", "sure"),))
    assert str(finding).endswith("  help:  (likely) write:\n           a = 1\n           b = 2")


@pytest.mark.parametrize(("module", "words"), [("", "the model itself, train.py:41"), (None, "outside the model, train.py:41")])
def test_a_finding_without_a_path_says_where_it_is(module, words):
    assert f"  where: {words}" in str(replace(wrong_device(), module=module))


def test_a_trace_prints_findings_then_moves_then_what_was_checked():
    text = str(one_step())
    assert text.startswith("Trace: 2 errors · 5 hops, 1.06 MiB · 2 virtual GPUs\n")
    places = [
        text.index(part)
        for part in ("error[wrong-device]", "moves, by line", "checked: wrong-device", "not checked: ping-pong")
    ]
    assert places == sorted(places)
    assert "where: decoder.head (Linear), train.py:41" in text
    assert (
        '  cuda:0 -> cuda:1  4x    64 KiB  explicit  f32[8, 512]       decoder            train.py:40  x = x.to("cuda:1")'
        in text
    )


CARD = DeviceMemory(DeviceId("cuda", 0), "virtual GPU", True, 1 << 30)


def on_cpu():
    """A step beside virtual GPUs to which nothing came."""
    op = OpEvent("addmm", "", "forward", None, (DeviceId("cpu"),), DeviceId("cpu"))
    return Trace(ops=(op,), memory=(MemoryCurve(CARD, "allocator", ()),), checked=("wrong-device",), virtual_gpus=2)


def test_a_trace_of_the_cpu_alone_says_first_that_virtual_gpus_were_idle():
    assert str(on_cpu()).startswith("Trace: nothing was done on the 2 virtual GPUs · no findings · no hops\n")
    assert "virtual" not in str(replace(on_cpu(), virtual_gpus=0)).splitlines()[0]


@pytest.mark.parametrize("used", [
    {"ops": (OpEvent("ones", None, "build", None, (), DeviceId("cuda", 1)),)},
    {"ops": (OpEvent("item", None, "other", None, (DeviceId("cuda", 1),), DeviceId("cpu")),)},
    {"ops": (), "moves": one_step().moves},
    {"memory": (MemoryCurve(CARD, "allocator", (MemoryPoint(0, "forward", "", None, 512),)),)},
    {"memory": (MemoryCurve(CARD, "allocator", (), (Refusal(1, 1 << 40, 0, "forward", "", None),)),)},
])  # fmt: skip
def test_a_trace_in_which_a_virtual_gpu_was_used_counts_them(used):
    assert str(replace(on_cpu(), **used)).splitlines()[0].endswith(" · 2 virtual GPUs")


def test_a_clean_trace_says_what_was_checked():
    assert str(Trace(checked=("wrong-device",))) == "Trace: no findings · no hops\n\nchecked: wrong-device"


def busy(**more):
    """A trace of many lines, each of them as long as people write them."""
    one, step = one_step().moves[1], one_step()
    moves = [replace(one, site=site(at, f"tokens, labels = batch[{at}].to(" + "device, " * 20 + ")")) for at in range(30)]
    waits = [Wait("item", GPU0, None, "other", site(at, "print(loss.item())"), False) for at in range(30)]
    known = {"checked": tuple(f"kind-{at}" for at in range(30)), "not_checked": tuple(f"no-{at}: no call" for at in range(30))}
    return replace(step, findings=(), moves=tuple(moves), waits=tuple(waits), **known, **more)


def test_a_report_that_finds_nothing_is_short_and_as_wide_as_a_terminal():
    lines = str(busy()).splitlines()
    assert len(lines) == 15
    assert max(map(columns_of, lines)) <= 120
    assert "moves, by line: 2 of 30" in lines
    assert "checked: 30 kinds of fault" in lines


@pytest.fixture(params=["en", "zh"])
def _language(request):
    set_language(request.param)
    yield
    set_language("en")


@pytest.mark.usefixtures("_language")
def test_tables_of_any_report_are_as_wide_as_a_terminal_and_tell_each_line_once():
    moves = [replace(move, phase=phase) for move in busy().moves for phase in ("loss", "other")]
    moves += [replace(move, source=GPU1, target=GPU0) for move in moves]
    lines = str(replace(busy(error="ValueError: no"), moves=tuple(moves))).splitlines()
    assert max(map(columns_of, lines)) <= 120
    assert sum("train.py:7 " in line for line in lines) == 2  # once in each table


def test_a_trace_that_ended_in_an_exception_says_so():
    assert "  ended by RuntimeError: boom" in str(Trace(error="RuntimeError: boom"))


def test_replicas_print_with_their_shares():
    text = str(replace(data_parallel(3), virtual_gpus=0))
    assert "DataParallel(Linear) at decoder: 63 samples cut over 3 replicas · scatter 1 ms" in text
    assert "The outputs are gathered on cuda:0, `output` f32[63, 10000] the largest: it holds all 2.40 MiB" in text
    assert "help:  Compute the loss inside `forward` and return it: 3 numbers are gathered" in text


def test_a_snapshot_prints_the_tree_with_devices():
    lines = str(split_model()).splitlines()
    assert lines[0].startswith("Translator · 1.3 M parameters · 5.91 MiB · cuda:0 2.96 MiB, cuda:1 1.96 MiB, cpu 1.00 MiB")
    assert any(line.split()[:4] == ["head", "Linear", "cuda:1", "f32"] for line in lines)
    assert any("mask" in line and "plain attribute" in line for line in lines)


def test_a_large_model_is_cut_and_says_so():
    leaves = tuple(ModuleFacts(f"m{n}", "Linear", 0, 1, (tensor("weight", storage=n + 1),)) for n in range(500))
    text = snapshot_text(Snapshot((ModuleFacts("", "Net", -1, 0), *leaves)), most=60)
    assert text.endswith("... and 441 rows more")
    assert len(text.splitlines()) < 70


def test_a_model_without_anything_prints():
    assert "0 parameters" in str(Snapshot((ModuleFacts("", "Identity", -1, 0),)))


def test_tensors_and_cells_have_short_names():
    assert tensor_words("float32", (8, 512)) == "f32[8, 512]"
    assert tensor_words("int64", ()) == "i64[]"
    assert tensor_words("float8_e4m3fn", None) == "f8_e4m3fn[?]"
    assert file_words("/tmp/ipykernel_71/1234.py") == "cell"
    assert file_words("<ipython-input-5-abcdef>") == "In[5]"
    assert file_words(r"C:\Temp\ipykernel_71\1234.py") == "cell"
    assert file_words("/home/me/ipykernel_71.py") == "ipykernel_71.py"
    assert str(Site("C:\\work\\train.py", 3)).endswith(":3")
    assert site(3).line == 3
