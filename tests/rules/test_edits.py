import ast

from devwidget.records.finding import Edit, apply_edits
from devwidget.rules.edits.draft import Draft, merged
from devwidget.rules.edits.source_file import code_of

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


def test_what_would_not_parse_is_no_edit():
    found = draft()
    found.replace(expression(found, "len(x)"), "len(")
    assert found.edits() == ()


def test_two_edits_of_one_line_become_one():
    line = Edit("net.py", 3, 3, "a = f(x.to(d), y)", "a = f(x, y)"), Edit("net.py", 3, 3, "a = f(x, y.to(d))", "a = f(x, y)")
    (both,) = merged([line[:1], line[1:]])
    assert both.text == "a = f(x.to(d), y.to(d))"


def test_a_diff_names_the_file_and_the_line_where_the_file_is_not_at_hand():
    assert Edit("gone.py", 7, 7, "y = 2", "y = 1").diff().splitlines() == [
        "--- gone.py", "+++ gone.py", "@@ -7 +7 @@", "-y = 1", "+y = 2",
    ]  # fmt: skip


def test_what_an_edit_writes_has_the_quotes_of_the_file():
    double = code_of("double.py", ('x = f("a", "b")\n', "y = g('c')\n"))
    found = Draft(double)
    found.append(double.tree.body[0].value, ".to('cuda:0')")
    found.insert_above(double.tree.body[1], "z = h('c', 'd')")
    assert {edit.text for edit in found.edits()} == {'x = f("a", "b").to("cuda:0")', "z = h('c', \"d\")"}
    single = code_of("single.py", ("x = f('a')\n",))
    found = Draft(single)
    found.append(single.tree.body[0].value, '.to("cuda:0")')
    assert [edit.text for edit in found.edits()] == ["x = f('a').to('cuda:0')"]
