import ast

import pytest

from devwidget.records.finding import Edit, apply_edits
from devwidget.rules.repairs.edits import Draft, mended, merged, with_others
from devwidget.rules.repairs.source_file import code_of
from tests.rules.builders import site

FORWARD = """
class Net(nn.Module):
    def forward(self, x, mask=None):
        for step in self.steps:
            x = x + (noise
                     * 2)  # why
        y = torch.zeros(
            len(x),
            # a comment behind the last argument
        )
        return y + x
"""


def draft():
    code = code_of("net.py", tuple(FORWARD.splitlines(keepends=True)))
    return Draft(code)


def expression(found, text):
    return next(n for n in ast.walk(found.code.tree) if isinstance(n, ast.expr) and ast.unparse(n) == text)


def after(found):
    return "\n".join(apply_edits(found.code.rows, found.edits()))


def test_an_expression_with_operators_gets_parentheses_and_comments_stay():
    found = draft()
    found.append(expression(found, "noise * 2"), ".to(x.device)")
    assert "x = x + (noise\n                     * 2)  # why" not in after(found)
    assert ").to(x.device)" in after(found)
    assert "# why" in after(found)
    ast.parse(after(found))


def test_a_keyword_goes_before_a_comment_behind_the_last_argument():
    found = draft()
    found.keyword(expression(found, "torch.zeros(len(x))"), "device", "x.device")
    assert "len(x), device=x.device,\n            # a comment" in after(found)


def test_lines_are_inserted_with_the_indentation_of_the_statement():
    found = draft()
    found.insert_above(found.code.statement(11), "y = y.to(x.device)")
    (edit,) = found.edits()
    assert (edit.first, edit.last, edit.text) == (11, 10, "        y = y.to(x.device)")


def test_what_would_not_parse_is_no_edit():
    found = draft()
    found.replace(expression(found, "len(x)"), "len(")
    assert found.edits() == ()


def test_an_argument_with_the_default_none_is_not_sure_to_have_a_value():
    found = draft()
    assert found.code.bound(found.code.statement(11)) == {"self", "x", "y"}
    assert found.code.bound(found.code.statement(5)) == {"self", "x", "step"}


def test_two_edits_of_one_line_become_one():
    line = Edit("net.py", 3, 3, "a = f(x.to(d), y)", "a = f(x, y)"), Edit("net.py", 3, 3, "a = f(x, y.to(d))", "a = f(x, y)")
    (both,) = merged([line[:1], line[1:]])
    assert both.text == "a = f(x.to(d), y.to(d))"


def test_two_edits_that_want_different_things_are_not_merged():
    line = Edit("net.py", 3, 3, "a = f(x.to(d))", "a = f(x)"), Edit("net.py", 3, 3, "a = f(x.to(e))", "a = f(x)")
    assert merged([line[:1], line[1:]]) is None


def test_a_statement_without_source_cannot_be_edited():
    assert mended(site("", 4), "do it", lambda draft, statement: draft.remove(statement)) is None


def test_a_diff_names_the_file_and_the_line_where_the_file_is_not_at_hand():
    assert Edit("gone.py", 7, 7, "y = 2", "y = 1").diff().splitlines() == [
        "--- gone.py", "+++ gone.py", "@@ -7 +7 @@", "-y = 1", "+y = 2",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["größe = f('ä', x)", "y = g(x)  # ä"])
def test_columns_count_bytes(text):
    fix = mended(site(text), "do it", lambda found, _: found.append(expression(found, "x"), ".to(d)"))
    assert fix.edits[0].text == text.replace("x)", "x.to(d))")


def test_two_edits_of_a_line_become_one_that_has_each_of_them_once():
    was = "y = x @ a @ b"
    one, other = (Edit("f.py", 3, 3, text, was) for text in ("y = x @ a.to(d) @ b", "y = x @ a @ b.to(d)"))
    for edit in (one, other):
        assert with_others(edit, [(one,), (other,)]).text == "y = x @ a.to(d) @ b.to(d)"


def test_statements_that_share_a_line_are_told_apart_by_what_is_in_them_or_not_at_all():
    code = code_of("net.py", ("a = f(1); b = g(2); c = f(1)\n", "if a: b = g(3)\n", "d = 4\n"))
    found = [code.statement(1, has) for has in ("g(2)", "f(1)", "h()", "")] + [code.statement(line) for line in (2, 3)]
    assert [each and ast.unparse(each) for each in found] == ["b = g(2)", None, None, None, "b = g(3)", "d = 4"]
