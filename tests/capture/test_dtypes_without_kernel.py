"""Dtypes that an operator has no kernel for: complex numbers in bfloat16, Fourier transforms in half precision."""

import pytest
import torch
from torch import nn

import devwidget
from tests.capture.test_explained import explained, recorded

BOTH = pytest.mark.parametrize("told", [recorded, explained])


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=1):
        yield


def rotary(length, dtype):
    angles = torch.arange(length, device="cuda").float().outer(torch.ones(4, device="cuda")).to(dtype)
    return torch.complex(angles.cos(), angles.sin())


@BOTH
def test_a_cast_before_complex_numbers_is_left_out(told):
    found = told(lambda: rotary(3, torch.bfloat16))
    assert found.headline == "`complex` has no kernel for bfloat16 on cuda:0"
    assert "PyTorch has none of bfloat16" in found.why
    assert found.birth.text.endswith(".to(dtype)")
    assert found.fixes[0].code.endswith('torch.ones(4, device="cuda"))')
    assert found.fixes[1].code == "return torch.complex(angles.cos().float(), angles.sin().float())"


def test_complex_numbers_of_single_precision_are_silent():
    with devwidget.record() as recording:
        rotary(3, torch.float32)
    assert recording.trace.findings == ()


def cast_with_its_partner(x, window):
    windowed = x.bfloat16()
    return torch.view_as_complex(windowed * window)


@BOTH
def test_a_cast_that_another_tensor_relies_on_stays(told):
    found = told(lambda: cast_with_its_partner(torch.ones(3, 2).cuda(), torch.ones(2).cuda().bfloat16()))
    assert found.fixes[0].code.startswith("return torch.view_as_complex(")


class Filter(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size
        self.weight = nn.Parameter(torch.ones(size // 2 + 1))

    def forward(self, x):
        spectrum = torch.fft.rfft(x, n=self.size)
        return torch.fft.irfft(spectrum * self.weight, n=self.size)


def filtered(size):
    layer = Filter(size).cuda().half()
    return layer(torch.ones(2, size, device="cuda").half())


@BOTH
def test_a_transform_in_half_precision_names_the_size(told):
    found = told(lambda: filtered(12))
    assert found.headline == "`fft_rfft` got a signal of size 12 in float16"
    assert found.why == "cuFFT computes in half precision only if each size is a power of two"
    assert found.fixes[0].code == "spectrum = torch.fft.rfft(x.float(), n=self.size)"


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_a_transform_of_a_power_of_two_is_silent_and_runs_in_half_precision():
    with devwidget.record() as recording:
        result = filtered(16)
    assert recording.trace.findings == ()
    assert (result.dtype, result.device.type) == (torch.float16, "cuda")


@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
@pytest.mark.parametrize(
    ("transform", "sizes"),
    [
        (lambda x: torch.fft.fft2(x), "[6, 8]"),
        (lambda x: torch.fft.rfftn(x, s=(4, 5), dim=(0, 1)), "[4, 5]"),
        (lambda x: torch.fft.rfft(x, 7), "[7]"),
        (lambda x: torch.fft.irfft(torch.fft.rfft(x)[..., :4]), "[6]"),
        (lambda x: torch.fft.ifft(x, dim=-2), "[6]"),
    ],
)
def test_a_virtual_gpu_names_the_sizes_as_cufft_does(transform, sizes):
    with pytest.raises(RuntimeError) as caught:
        transform(torch.ones(6, 8, device="cuda", dtype=torch.float16))
    assert str(caught.value).endswith(f"but got a signal size of{sizes}")


def test_a_transform_whose_cast_operand_is_gone_is_still_about_its_dtype():
    x = torch.ones(12, device="cuda")
    found = explained(lambda: torch.fft.fft(x.to(torch.float16)))
    assert (found.headline, found.birth) == ("`fft_fft` got a signal of size 12 in float16", None)


def test_a_dtype_that_the_message_names_is_the_one_without_a_kernel():
    matrix = torch.ones(2, 2, device="cuda").half()
    found = explained(lambda: torch.linalg.inv(matrix))
    assert found.headline == "`linalg_inv` has no kernel for float16 on cuda:0"


def test_numpy_has_no_bfloat16():
    h = torch.ones(2).bfloat16()
    found = explained(lambda: h.numpy())
    assert found.headline == "NumPy has no bfloat16"
    assert "h.float().numpy()" in found.fixes[1].code


@BOTH
def test_the_mean_of_integers_is_computed_in_floats(told):
    ids = torch.arange(4, device="cuda")

    def program():
        return ids.mean()

    found = told(program)
    assert found.headline == "`mean` has no kernel for int64 on cuda:0"
    assert found.fixes[0].code == "return ids.float().mean()"


@BOTH
def test_an_integer_among_floats_is_the_one_to_cast(told):
    model, image = nn.Conv2d(1, 2, 3).cuda(), torch.zeros(1, 1, 4, 4, device="cuda").byte()

    def program():
        return model(image)

    found = told(program)
    assert (found.kind, found.headline) == ("wrong-dtype", "`conv2d` got float32 and uint8 tensors")
    assert "image.float()" in found.fixes[0].code


@BOTH
def test_a_target_of_integers_becomes_floats(told):
    logits, target = torch.zeros(2, device="cuda"), torch.ones(2, device="cuda").long()

    def program():
        return nn.functional.binary_cross_entropy_with_logits(logits, target)

    assert "target.float()" in told(program).fixes[0].code


def test_a_recurrent_layer_names_the_input_that_has_another_dtype():
    layer, x = nn.LSTM(4, 4).cuda().half(), torch.ones(2, 1, 4, device="cuda")
    found = explained(lambda: layer(x))
    assert found.notes[0] == "`x` is float32; the others are float16"


@pytest.mark.parametrize("call", [torch.linalg.svd, torch.quantile, torch.std, torch.multinomial])
def test_an_edit_for_a_dtype_without_kernel_is_one_that_runs(call):
    arguments = {torch.quantile: (0.5,), torch.multinomial: (1,)}.get(call, ())
    dtype = torch.int64 if call in (torch.std, torch.multinomial) else torch.float16
    x = torch.ones(2, 2, device="cuda").to(dtype)

    def program():
        return call(x, *arguments)

    found = explained(program)
    assert found.kind == "unsupported-on-device"
    code = found.fixes[0].code
    assert "x.float()" in code
    assert (".to(x.dtype)" in code) == (call is torch.quantile)
