"""Bytes, counts and times as words."""

import pytest

from devwidget.report.style.units import count_words, format_bytes, format_count, format_seconds


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (2500, "2.4 KiB"), (2048000, "1.95 MiB"), (1024**2 - 1, "1.00 MiB"),
        (497_759_232, "475 MiB"), (int(14.6 * 1024**3), "14.6 GiB"), (5 * 1024**4, "5.00 TiB"),
    ],
)  # fmt: skip
def test_bytes_have_three_digits_and_a_unit(size, words):
    assert format_bytes(size) == words


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0"), (9999, "9999"), (12345, "12.3 k"), (124439808, "124.4 M"), (7 * 10**10, "70.0 B")]
)
def test_large_counts_are_rounded(number, words):
    assert format_count(number) == words


@pytest.mark.parametrize(("seconds", "words"), [(2e-5, "20 µs"), (0.0123, "12 ms"), (1.26, "1.3 s"), (150.0, "150 s")])
def test_times_have_a_fitting_unit(seconds, words):
    assert format_seconds(seconds) == words


def test_one_thing_has_no_plural():
    assert (count_words(1, "hop"), count_words(2, "hop"), count_words(1234, "row")) == ("1 hop", "2 hops", "1,234 rows")
