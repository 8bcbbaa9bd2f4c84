import pytest

from devwidget.rules import _repairs


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("torch.zeros(2, n)", "h = torch.zeros(2, n, device=x.device)"),
        ("torch.zeros(2, n, device='cpu')", "h = torch.zeros(2, n, device=x.device)"),
        ("torch.empty()", "h = torch.empty(device=x.device)"),
        ("torch.zeros(\n    2,\n    n,\n)", "h = torch.zeros(\n    2,\n    n, device=x.device)"),
        ("torch.tensor([1, (2)], dtype=d)", "h = torch.tensor([1, (2)], dtype=d, device=x.device)"),
    ],
)
def test_device_is_written_into_the_call(call, expected):
    op = call.split("(")[0].removeprefix("torch.")
    assert _repairs.with_device(f"h = {call}", call, op, "x.device") == expected


def test_a_call_that_takes_no_device_is_left_alone():
    assert _repairs.with_device("h = make(3)", "make(3)", "add", "x.device") == ""


def test_only_the_whole_expression_is_replaced():
    assert _repairs.replaced("y = (mask + mask2)[mask]", "mask2", "m") == "y = (mask + m)[mask]"
    assert _repairs.replaced("dev = 'gpu'  # gpu", "'gpu'", "'cuda'") == "dev = 'cuda'  # gpu"


def test_columns_count_bytes():
    assert _repairs.replaced("größe = f('ä', x)", "x", "x.to(d)") == "größe = f('ä', x.to(d))"


def test_text_that_does_not_parse_gives_nothing():
    assert _repairs.replaced("for x in", "x", "y") == ""
    assert _repairs.as_buffer("a, b = 1, 2", "a") == ""
