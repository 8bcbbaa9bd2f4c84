"""`devwidget.explain`: what an exception tells after the fact, for every fatal case of the corpus and for daily life."""

import operator
import re
import warnings

import pytest
import torch
from torch import nn

import devwidget
from devwidget import post_mortem
from devwidget.capture import background_births
from devwidget.records.loading import json_io
from tests.corpus import score
from tests.sampling import sample

RETURNED = "the function that made or moved it has returned, and its variables with it"
NO_BIRTH = "the case has no line of birth"
BIRTH_IS_OUT_OF_REACH = {
    "case_adagrad_before_cuda": RETURNED,
    "case_class_weight_on_cpu": "the loss is named in a closure, the weight inside it in a function that has returned",
    "case_data_cpu_model_gpu": RETURNED,
    "case_dataparallel_ids_2_3_model_on_0": RETURNED,
    "case_dataparallel_wraps_cpu_model": RETURNED,
    "case_dp_hidden_state_split_on_layers": RETURNED,
    "case_dp_next_parameters_in_replica": NO_BIRTH,
    "case_dp_scalar_loss_output": NO_BIRTH,
    "case_float64_from_numpy": RETURNED,
    "case_histogram_has_no_cuda_kernel": NO_BIRTH,
    "case_l1_target_left_on_cpu": RETURNED,
    "case_layer_replaced_after_to": RETURNED,
    "case_meta_head_left_behind": "where the module was built on meta was forgotten when it was built",
    "case_multi_pipeline_three_bugs": RETURNED,
    "case_numpy_of_cuda_output": "computed by layers that have returned; the line that called the model is given",
    "case_packed_lengths_on_gpu": RETURNED,
    "case_tied_head_moved_away": RETURNED,
}
FAULT_IS_OUT_OF_REACH = {
    "case_custom_function_grad_on_cpu": "the forward line of a node in backward is known only while forward runs",
}
FIX_IS_OUT_OF_REACH = {
    "case_multi_data_parallel_three_bugs": "a worker failed, and its variables are kept only with `births on`",
    "case_to_result_discarded": "what the line computes of the tensor is known only with `births on`",
}
CASES = sorted(score.pathlib.Path(score.__file__).parent.glob("case_*.py"))
FATAL = [path for path in CASES if score.expectations(path)[1] and path.stem not in FIX_IS_OUT_OF_REACH]


def explained(path):
    with warnings.catch_warnings(), devwidget.simulate(gpus=score.gpus_of(path)):
        warnings.simplefilter("ignore")
        _, error = score.run_program(path)
        return devwidget.explain(error)


@pytest.mark.parametrize("path", sample(FATAL, every=6), ids=lambda path: path.stem)
def test_a_fatal_case_is_explained_from_its_exception_alone(path):
    explanation = explained(path)
    (found,) = explanation.findings
    expected, lines = score.expectations(path)[0], score.marker_lines(path)
    assert found.kind in {each["kind"] for each in expected}
    faults = {lines.get(each["fault_line"]): each for each in expected}
    assert path.stem in FAULT_IS_OUT_OF_REACH or score.line_of(found.fault, path) in faults
    expect = faults.get(score.line_of(found.fault, path), expected[0])
    assert any(fragment in score.words_of(found) for fragment in expect["fix_contains"])
    births = {lines[name] for name in [expect["birth_line"], *expect.get("birth_alt", [])] if name}
    assert path.stem in BIRTH_IS_OUT_OF_REACH or score.line_of(found.birth, path) in births
    assert json_io.loads(json_io.dumps(explanation)) == explanation


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.read = nn.Linear(4, 2)

    def forward(self, x):
        return self.read(x)


def failing(act):
    with pytest.raises(Exception) as caught:  # noqa: PT011  each caller says what it expects of the explanation
        act()
    return caught.value


@pytest.fixture
def gpu():
    with devwidget.simulate(gpus=1):
        yield


@pytest.fixture
def watched():
    background_births.begin_watching()
    yield
    background_births.end_watching()


def test_the_text_names_the_values_the_cause_and_what_only_a_run_can_tell(gpu):
    model = Reader().to("cuda:0")
    batch = torch.ones(3, 4)
    text = str(devwidget.explain(failing(lambda: model(batch))))
    assert text.startswith("RuntimeError: Expected all tensors to be on the same device")
    assert "error[wrong-device] `linear` got tensors on cpu and cuda:0" in text
    assert re.search(r"x +f32\[3, 4\] +cpu", text)
    assert "batch = torch.ones(3, 4, device='cuda:0')" in text
    assert "devwidget.trace(model, batch), or record(heal=True) around a loop, finds all" in text


def test_a_move_that_was_thrown_away_is_recognised_while_its_function_is_alive(gpu):
    model = Reader().to("cuda:0")
    batch = torch.ones(3, 4)
    batch.to("cuda:0")
    (found,) = devwidget.explain(failing(lambda: model(batch))).findings
    assert found.kind == "unassigned-move"
    assert found.fixes[0].code == 'batch = batch.to("cuda:0")'


def test_it_finds_the_exception_being_handled(gpu):
    try:
        Reader().to("cuda:0")(torch.ones(3, 4))
    except RuntimeError:
        assert devwidget.explain().findings[0].kind == "wrong-device"


def test_a_kernel_that_has_stopped_is_looked_for_where_its_call_is_waited_for():
    explanation = devwidget.explain(torch.AcceleratorError("CUDA error: device-side assert triggered"))
    assert "CUDA_LAUNCH_BLOCKING=1 in the environment to see the call" in explanation.verdict


def test_a_cause_behind_another_exception_is_found(gpu):
    def wrapped():
        try:
            Reader().to("cuda:0")(torch.ones(3, 4))
        except RuntimeError as error:
            raise ValueError("training failed") from error

    assert devwidget.explain(failing(wrapped)).findings[0].kind == "wrong-device"


@pytest.mark.parametrize("act", [lambda: 1 / 0, lambda: torch.ones(2) @ torch.ones(3), lambda: {}["x"]])
def test_of_any_other_exception_only_the_line_and_the_tensors_are_shown(act):
    error = failing(act)
    explanation = devwidget.explain(error)
    assert (explanation.findings, explanation.verdict, explanation.notes) == ((), "", ())
    assert explanation.site is not None
    assert not post_mortem.is_about_placement(error)


def test_a_full_disk_is_not_about_devices():
    assert devwidget.explain(OSError(28, "No space left on device")).verdict == ""


def test_an_event_of_cuda_is_no_crash_where_there_is_none():
    assert devwidget.explain(failing(torch.cuda.Event)).site is not None


ABOUT = {
    "Attempting to unscale FP16 gradients.": "keep the parameters in float32",
    "No inf checks were recorded for this optimizer.": "no parameter of this optimizer has a gradient",
    "unscale_() has already been called on this optimizer since the last update().": "at most once per optimizer",
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.": "binary_cross_entropy_with_logits",
    "'dict' object has no attribute 'to'": "move each tensor in the `dict`",
    "'DataParallel' object has no attribute 'init_hidden'": "`.module.init_hidden`",
    "Caught RuntimeError in replica 0 on device 0.\nRuntimeError: Expected hidden size (2, 4, 8), got [2, 8, 8]":
        "each replica gets a part of the batch",
    "Cannot convert a MPS Tensor to float64 dtype as the MPS framework doesn't support float64.": "MPS has no float64",
    "cannot assign 'torch.cuda.FloatTensor' as parameter 'weight' (torch.nn.Parameter or None expected)":
        "`module.weight.data.copy_(tensor)`",
    "result type Float can't be cast to the desired output type Long": "cannot be written into a Long tensor",
    "Only Tensors of floating point and complex dtype can require gradients": "integers have no gradient",
    "Cannot re-initialize CUDA in forked subprocess.": "spawn",
    "Caught KeyError in DataLoader worker process 0.\nKeyError: 3": "num_workers=0",
    "Cannot access accelerator device when none is available.": "this machine has none",
}  # fmt: skip


@pytest.mark.parametrize("text", ABOUT)
def test_an_error_about_placement_precision_or_workers_gets_an_answer(text):
    explanation = devwidget.explain(RuntimeError(text))
    assert explanation.findings == ()
    assert ABOUT[text] in explanation.verdict
    assert post_mortem.is_about_placement(AttributeError(text))


def test_an_exception_without_a_traceback_is_no_crash():
    assert devwidget.explain(RuntimeError("tensors on different devices")).findings == ()


def test_a_value_in_a_list_that_was_filled_later_is_not_born_with_the_list(gpu):
    def joined():
        parts = []
        parts.append(torch.zeros(2, device="cuda:0"))
        parts.append(torch.zeros(2))
        return torch.cat(parts)

    (found,) = devwidget.explain(failing(joined)).findings
    assert (found.birth, found.fixes[0].code) == (None, "parts = [each.to(parts[0].device) for each in parts]")


def test_a_tensor_is_followed_through_the_lines_that_computed_it(gpu):
    def added():
        noise = torch.randn(3, 4)
        scaled = noise * 2
        shifted = scaled.view(3, 4)
        return torch.ones(3, 4, device="cuda:0") + shifted

    (found,) = devwidget.explain(failing(added)).findings
    assert found.birth is not None
    assert found.birth.text == "noise = torch.randn(3, 4)"


@pytest.mark.parametrize(("name", "act"), [("matmul", lambda a, b: a @ b), ("bitwise_xor", lambda a, b: a.bool() ^ b.bool())])
def test_an_operator_is_called_by_the_name_of_its_function(gpu, name, act):
    one, other = torch.ones(2, 2, device="cuda:0"), torch.ones(2, 2)
    (found,) = devwidget.explain(failing(lambda: act(one, other))).findings
    assert found.headline == f"`{name}` got tensors on cpu and cuda:0"


def test_a_tensor_made_on_the_failing_line_is_named_by_the_call_that_made_it(gpu):
    def added():
        x = torch.ones(2, device="cuda:0")
        return x + torch.zeros(2)

    (found,) = devwidget.explain(failing(added)).findings
    assert (found.kind, found.birth.text) == ("wrong-device", "return x + torch.zeros(2)")
    assert found.fixes[0].code == "return x + torch.zeros(2, device=x.device)"


def test_a_factory_that_was_told_no_device_is_blamed_though_its_partner_is_gone(gpu):
    (found,) = devwidget.explain(failing(lambda: torch.zeros(2) + torch.ones(2).cuda())).findings
    assert found.notes == ("`torch.zeros(2)` was created on cpu; the others are on cuda:0",)


class Returned(nn.Linear):
    """Its weight is on the GPU, and what it returns is not."""

    def __init__(self):
        super().__init__(2, 2, device="cuda:0")

    def forward(self, x):
        return super().forward(x).cpu()


ON_GPU, ON_CPU = [], [torch.ones(2)]
out_of_sight = operator.itemgetter(0)


@pytest.mark.parametrize(
    "act",
    [
        lambda: torch.addcmul(out_of_sight(ON_GPU), torch.tensor(2.0), out_of_sight(ON_CPU)),
        lambda: out_of_sight(ON_GPU)[torch.arange(2)] + out_of_sight(ON_CPU),
        lambda: Returned()(ON_GPU[0]) + out_of_sight(ON_GPU),
    ],
    ids=[
        "a scalar may be on the host",
        "an index may be on the host",
        "a layer may answer from anywhere",
    ],
)
def test_a_tensor_that_may_be_innocent_is_not_blamed(gpu, act):
    ON_GPU[:] = [torch.ones(2, device="cuda:0")]
    assert devwidget.explain(failing(act)).findings == ()


def blank(rows):
    return torch.zeros(rows)


def test_what_a_helper_returned_is_moved_on_the_line_that_called_it(gpu):
    x = torch.ones(2, device="cuda:0")
    (found,) = devwidget.explain(failing(lambda: x * blank(2).unsqueeze(0))).findings
    assert found.birth is None
    assert found.fixes[-1].edits[0].text.strip().endswith("blank(2).unsqueeze(0).to(x.device))).findings")


class Tables(nn.Linear):
    frequencies = torch.ones(2)

    @property
    def mask(self):
        return torch.ones(2).bool()

    def of_the_class(self, x):
        return x[:, None] * self.frequencies

    def of_a_property(self, x):
        return x.masked_fill(~self.mask, 0.0)

    def of_a_comprehension(self, x):
        def window(size):
            ramp = torch.arange(2.0)
            return ramp < size

        return [
            part
            * window(
                2,
            )
            for part in x
        ]


def explained_table(method):
    model, x = Tables(2, 2).cuda(), torch.ones(2, 2, device="cuda:0")
    (found,) = devwidget.explain(failing(lambda: method(model, x))).findings
    return found


def test_an_attribute_of_a_class_is_made_where_the_class_says(gpu):
    assert explained_table(Tables.of_the_class).birth.text == "frequencies = torch.ones(2)"


@pytest.mark.parametrize("method", [Tables.of_a_property, Tables.of_a_comprehension])
def test_what_a_property_or_a_function_inside_returned_is_found_and_moved(gpu, method):
    found = explained_table(method)
    assert found.birth is None
    assert found.fixes[0].edits


class Momentum(torch.optim.Optimizer):
    def __init__(self, parameters):
        super().__init__(parameters, {"lr": 0.1})

    @torch.no_grad()
    def step(self):
        for parameter in self.param_groups[0]["params"]:
            state = self.state[parameter]
            state["speed"] = torch.zeros(parameter.shape)
            state["speed"].add_(parameter.grad)


def test_state_that_an_optimizer_makes_in_its_step_is_made_in_the_wrong_place(gpu):
    model = nn.Linear(2, 2).cuda()
    model(torch.ones(2, 2, device="cuda:0")).sum().backward()
    (found,) = devwidget.explain(failing(Momentum(model.parameters()).step)).findings
    assert (found.kind, found.birth.text) == ("wrong-device", 'state["speed"] = torch.zeros(parameter.shape)')
    assert found.fixes[0].code == 'state["speed"] = torch.zeros(parameter.shape, device=parameter.device)'


def test_an_item_of_a_tuple_is_moved_with_a_tuple_that_is_made_anew(gpu):
    lstm, state = nn.LSTM(3, 2).cuda(), (out_of_sight([torch.zeros(1, 1, 2)]), out_of_sight([torch.zeros(1, 1, 2)]))

    def run():
        return lstm(torch.ones(4, 1, 3, device="cuda:0"), state)

    (found,) = devwidget.explain(failing(run)).findings
    moved = [edit.text.strip() for fix in found.fixes for edit in fix.edits]
    assert any(text.endswith(".device) for part in state))") for text in moved)


def test_the_other_parts_of_a_tuple_stay_as_they_are(gpu):
    lstm, x = nn.LSTM(3, 2).cuda(), torch.ones(4, 1, 3, device="cuda:0")
    state = (torch.zeros(1, 1, 2, device="cuda:0"), out_of_sight([torch.zeros(1, 1, 2)]))

    def run():
        return lstm(x, state)

    (found,) = devwidget.explain(failing(run)).findings
    moved = [edit.text.strip() for fix in found.fixes for edit in fix.edits]
    assert "return lstm(x, (*state[:1], state[1].to(x.device), *state[2:]))" in moved


class Masked(nn.Module):
    def __init__(self, mask_of):
        super().__init__()
        self.mask_of, self.fc = mask_of, nn.Linear(4, 4)

    def forward(self, x):
        return self.mask_of(self.fc(x))


def test_a_closure_that_a_replica_shares_is_blamed_for_its_tensor(watched):
    with devwidget.simulate(gpus=2):
        band = torch.ones(4, device="cuda:0")

        def mask_of(h):
            return h * (band > 0)

        model = nn.DataParallel(Masked(mask_of).cuda(), device_ids=[0, 1])
        (found,) = devwidget.explain(failing(lambda: model(torch.ones(4, 4, device="cuda:0")))).findings
    assert found.fixes[0].code == "return h * ((band > 0).to(h.device))"
    assert found.birth.text == 'band = torch.ones(4, device="cuda:0")'


def test_without_source_the_variables_of_the_frame_are_told(gpu):
    code = "import torch\nleft, right = torch.ones(2), torch.ones(2, device='cuda:0')\nleft + right"
    explanation = devwidget.explain(failing(lambda: exec(code, {})))
    assert explanation.findings[0].kind == "wrong-device"
    assert "left float32[2] cpu" in str(explanation)


class Source:
    """Of values that no source tells the origin of."""

    def __init__(self, make):
        self._made = {"sample": make}

    def __getattr__(self, name):
        return self.__dict__["_made"][name]


NOISE = Source(lambda *size: torch.zeros(*size))


def joined(x):
    return torch.cat([x, NOISE.sample(3)])


def test_the_one_operand_that_is_gone_was_on_the_other_device(gpu):
    x = torch.ones(3, device="cuda:0")
    (found,) = devwidget.explain(failing(lambda: joined(x))).findings
    assert found.kind == "wrong-device"
    assert re.search(r"`NOISE.sample\([\d, ]+\)` is on cpu", str(found))
    assert ".to(x.device)" in found.fixes[0].edits[0].text


def test_it_works_inside_a_recording_and_leaves_it_whole(gpu):
    model = Reader().to("cuda:0")
    with devwidget.record() as recording:
        try:
            model(torch.ones(3, 4))
        except RuntimeError:
            explanation = devwidget.explain()
    assert explanation.findings[0].kind == "wrong-device"
    assert recording.trace.findings[0].kind == "wrong-device"


class Scaled(Reader):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(2)

    def forward(self, x):
        return self.read(x) * self.scale


def test_an_error_whose_worker_is_gone_is_answered_with_how_to_keep_it():
    with devwidget.simulate(gpus=2):
        model = nn.DataParallel(Scaled().to("cuda:0"))
        explanation = devwidget.explain(failing(lambda: model(torch.ones(4, 4, device="cuda:0"))))
    assert not explanation.findings
    assert "DataParallel worker" in explanation.notes[0]


def test_an_exception_that_stayed_after_its_handler_is_not_the_last_one(monkeypatch):
    """CPython leaves one there when Ctrl-C strikes the last instruction of an `except`."""
    stuck, last = failing(lambda: int("no number")), failing(lambda: torch.ones(2) + "x")
    monkeypatch.setattr(post_mortem.sys, "exception", lambda: stuck, raising=False)
    monkeypatch.setattr(post_mortem.sys, "last_exc", None, raising=False)
    monkeypatch.setattr(post_mortem.sys, "last_value", last, raising=False)
    assert post_mortem.last_error() is last
    monkeypatch.undo()
    try:
        raise KeyError("now")
    except KeyError:
        found = post_mortem.last_error()
    assert repr(found) == "KeyError('now')"


def _set_default_type():
    torch.set_default_tensor_type("torch.cuda.FloatTensor")


WITHOUT_CUDA = {
    "module.cuda": lambda: nn.Linear(2, 2).cuda(),
    "tensor.cuda": lambda: torch.rand(2).cuda(),
    "module.to": lambda: nn.Linear(2, 2).to("cuda"),
    "factory": lambda: torch.zeros(2, device="cuda"),
    "set_device": lambda: torch.cuda.set_device(0),
    "old constructor": lambda: torch.cuda.FloatTensor(4, 6),
    "old default": _set_default_type,
    "current_device": lambda: torch.cuda.current_device(),
    "generator": lambda: torch.Generator("cuda"),
}


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch can use CUDA")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", WITHOUT_CUDA)
def test_a_build_without_cuda_is_named_and_virtual_gpus_are_offered(program):
    (found,) = devwidget.explain(failing(WITHOUT_CUDA[program])).findings
    assert found.kind == "invalid-device"
    assert found.why.startswith(f"this build of torch ({torch.__version__}) does not support CUDA")
    assert not found.notes or "CUDA_VISIBLE_DEVICES" not in " ".join(found.notes)
    codes = [fix.code for fix in found.fixes]
    assert any("is_available() else" in code for code in codes)
    assert "devwidget.simulate(gpus=1).start()" in codes


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="this torch can use CUDA")
def test_a_checkpoint_of_a_gpu_cannot_be_read_by_a_build_without_cuda(tmp_path):
    file = tmp_path / "model.pt"
    with devwidget.simulate(gpus=1):
        torch.save({"weight": torch.ones(2, device="cuda")}, file)
    with pytest.raises(RuntimeError) as caught:
        torch.load(file)
    (found,) = devwidget.explain(caught.value).findings
    assert "does not support CUDA" in found.why
    assert "map_location='cpu'" in found.fixes[0].code
