"""An edit as rows of a difference: the words that change are marked."""

from devwidget.records.finding import Edit
from devwidget.report.page.edit_rows import edit_rows


def marked(parts):
    return "".join(f"[{text}]" if changes else text for text, changes in parts)


def rows(old, new):
    return [
        (sign, number, marked(parts)) for sign, number, parts in edit_rows(Edit("a.py", 5, 4 + len(old.split("\n")), new, old))
    ]


def test_what_is_put_into_a_line_is_marked_and_the_indent_taken_off():
    assert rows("        x = f(n).g()", "        x = f(n, device=y.device).g()") == [
        ("-", 5, "x = f(n).g()"),
        ("+", 5, "x = f(n[, device=y.device]).g()"),
    ]


def test_words_on_both_sides_are_marked():
    assert rows("a = one(x, y)", "a = two(x, y)") == [("-", 5, "a = [one](x, y)"), ("+", 5, "a = [two](x, y)")]


def test_a_line_that_has_nothing_of_the_other_is_marked_nowhere():
    assert rows("alpha", "beta(gamma)") == [("-", 5, "alpha"), ("+", 5, "beta(gamma)")]


def test_new_lines_have_their_numbers_in_the_new_text():
    assert rows("a\nb", "a\nc\nd\nb") == [("+", 6, "c"), ("+", 7, "d")]


def test_an_edit_that_only_inserts_has_no_old_row():
    assert [(row[0], row[1]) for row in edit_rows(Edit("a.py", 5, 4, "x = 1"))] == [("+", 5)]
