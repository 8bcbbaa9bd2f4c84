"""What records print."""

from dataclasses import replace

import pytest

import devwidget.report  # noqa: F401  registers the words
from devwidget.language.speaking import set_language
from devwidget.records.device import DeviceId
from devwidget.records.finding import Fix
from devwidget.records.memory import DeviceMemory, MemoryCurve, Refusal
from devwidget.records.site import Site, file_label
from devwidget.records.snapshot import ModuleFacts, Snapshot
from devwidget.records.trace import OpEvent, Trace, Wait
from devwidget.report.page.cards import finding_card
from devwidget.report.style.safe_text import columns_of
from devwidget.report.style.words import tensor_words
from tests.views.builders import GPU0, GPU1, one_step, site, tensor, unregistered, wrong_device


def test_a_page_says_what_verified_means():
    verified, untried = finding_card(unregistered(), 0)["fixes"][0], finding_card(wrong_device(), 0)["fixes"][0]
    assert verified["confidence"] == "verified: the step ran with this edit"
    assert untried["confidence"] == "likely"


def test_a_fix_of_several_lines_stands_below_its_summary():
    finding = replace(wrong_device(), fixes=(Fix("write", "a = 1\nb = 2", "sure"),))
    assert str(finding).endswith("  help:  (likely) write:\n           a = 1\n           b = 2")


@pytest.mark.parametrize(("module", "words"), [("", "the model itself, train.py:41"), (None, "outside the model, train.py:41")])
def test_a_finding_without_a_path_says_where_it_is(module, words):
    assert f"  where: {words}" in str(replace(wrong_device(), module=module))


CARD = DeviceMemory(DeviceId("cuda", 0), "virtual GPU", True, 1 << 30)


def on_cpu():
    """A step beside virtual GPUs to which nothing came."""
    op = OpEvent("addmm", "", "forward", None, (DeviceId("cpu"),), DeviceId("cpu"))
    return Trace(ops=(op,), memory=(MemoryCurve(CARD, "allocator", ()),), checked=("wrong-device",), virtual_gpus=2)


def test_a_trace_of_the_cpu_alone_says_first_that_virtual_gpus_were_idle():
    assert str(on_cpu()).startswith("Trace: nothing ran on the 2 virtual GPUs · no findings · no transfers\n")
    assert "virtual" not in str(replace(on_cpu(), virtual_gpus=0)).splitlines()[0]


@pytest.mark.parametrize("used", [
    {"ops": (OpEvent("item", None, "other", None, (DeviceId("cuda", 1),), DeviceId("cpu")),)},
    {"ops": (), "moves": one_step().moves},
    {"memory": (MemoryCurve(CARD, "allocator", (), (Refusal(1, 1 << 40, 0, "forward", "", None),)),)},
])  # fmt: skip
def test_a_trace_in_which_a_virtual_gpu_was_used_counts_them(used):
    assert str(replace(on_cpu(), **used)).splitlines()[0].endswith(" · 2 virtual GPUs")


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
    assert "transfers, by line: 2 of 30" in lines
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


def test_a_large_model_is_cut_and_says_so():
    leaves = tuple(ModuleFacts(f"m{n}", "Linear", 0, 1, (tensor("weight", storage=n + 1),)) for n in range(500))
    text = str(Snapshot((ModuleFacts("", "Net", -1, 0), *leaves)))
    assert text.endswith("and 441 rows more")
    assert len(text.splitlines()) < 70


def test_tensors_and_cells_have_short_names():
    assert tensor_words("float32", (8, 512)) == "f32[8, 512]"
    assert tensor_words("int64", ()) == "i64[]"
    assert tensor_words("float8_e4m3fn", None) == "f8_e4m3fn[?]"
    assert file_label("/tmp/ipykernel_71/1234.py") == "cell"
    assert file_label("<ipython-input-5-abcdef>") == "In[5]"
    assert file_label(r"C:\Temp\ipykernel_71\1234.py") == "cell"
    assert file_label("/home/me/ipykernel_71.py") == "ipykernel_71.py"
    assert str(Site("C:\\work\\train.py", 3)).endswith(":3")
    assert site(3).line == 3


def test_a_finding_is_markdown_and_a_page_too():
    finding = replace(unregistered(), fixes=(Fix("write", "a = 1\nb = 2", "sure"),))
    markdown, page = finding._show_as("markdown"), finding.to_html()
    assert markdown.startswith("**error[unregistered-tensor] ")
    assert markdown.endswith("```python\na = 1\nb = 2\n```\n")
    assert "<title>error[unregistered-tensor]" in page
    assert '<pre class="code"><span>a = 1\n</span>' in page
