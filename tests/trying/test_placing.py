"""Edits go to the code that runs, under the old numbers of its lines, and tell whether they were reached."""

import dataclasses
import importlib.util
import sys
import textwrap

import pytest

from devwidget.records.finding import Edit
from devwidget.trying.edited_code import NotTried
from devwidget.trying.installed_edits import place_edits
from tests.cells import ipython


@pytest.fixture
def program(tmp_path):
    """Writes a program, and imports it."""
    made = []

    def write(text, name="tried_program"):
        path = tmp_path / f"{name}.py"
        path.write_text(textwrap.dedent(text).lstrip("\n"))
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        made.append(name)
        spec.loader.exec_module(module)
        return module

    yield write
    for name in made:
        del sys.modules[name]


def edit(module, first, last, text):
    with open(module.__file__) as file:
        rows = file.read().split("\n")
    return Edit(module.__file__, first, last, text, "\n".join(rows[first - 1 : last]))


def test_a_line_that_runs_is_reached_and_one_in_another_branch_is_not(program):
    module = program("""
        def step(x):
            if x > 0:
                return 1
            return 2
    """)
    edits = [edit(module, 3, 3, "        return 10"), edit(module, 4, 4, "    return 20")]
    with place_edits(edits[:1], None) as trial:
        assert module.step(1) == 10
        assert not trial.list_unreached()
    with place_edits(edits, None) as trial:
        assert module.step(-1) == 20
        assert trial.list_unreached()
    assert module.step(1) == 1


def test_lines_below_an_edit_keep_their_numbers(program):
    module = program("""
        def step():
            x = 1
            raise ValueError(x)
    """)
    edits = [edit(module, 2, 1, "    y = 5\n    z = 6"), edit(module, 2, 2, "    x = (\n        y)")]
    with place_edits(edits, None), pytest.raises(ValueError, match="5") as caught:
        module.step()
    assert caught.traceback[-1].lineno + 1 == 3


def test_two_functions_of_one_name_keep_their_own_code(program):
    module = program("""
        class Holder:
            @property
            def size(self):
                return 1

            @size.setter
            def size(self, value):
                self.kept = value
    """)
    holder = module.Holder()
    with place_edits([edit(module, 4, 4, "        return 10")], None):
        holder.size = 3
        assert (holder.size, holder.kept) == (10, 3)


def test_an_edit_that_adds_a_function_inside_is_reached(program):
    module = program("""
        def step(state):
            return state
    """)
    with place_edits([edit(module, 2, 2, "    return tuple(each + 1 for each in state)")], None) as trial:
        assert module.step((1, 2)) == (2, 3)
        assert not trial.list_unreached()


def test_the_functions_of_a_cell_have_the_new_code():
    cell = "import math\n\ndef step(x):\n    return math.floor(x)\n"
    with ipython() as shell:
        shell.run_cell(cell)
        step = shell.user_ns["step"]
        change = Edit(step.__code__.co_filename, 4, 4, "    return math.ceil(x)", "    return math.floor(x)")
        with place_edits([change], None) as trial:
            assert step(1.5) == 2
            assert not trial.list_unreached()


def test_a_function_made_while_the_step_runs_has_the_new_code(program):
    module = program("""
        def step():
            def inner():
                return 1
            return inner()
    """)
    with place_edits([edit(module, 3, 3, "        return 10")], None) as trial:
        assert module.step() == 10
        assert not trial.list_unreached()


def test_a_removed_line_is_reached_where_the_one_before_it_is(program):
    module = program("""
        def step(seen):
            seen.append(1)
            seen.append(2)
            return seen
    """)
    with place_edits([edit(module, 3, 3, "")], None) as trial:
        assert module.step([]) == [1]
        assert not trial.list_unreached()


def test_what_is_no_program_is_not_tried(program):
    module = program("""
        def step():
            return 1
    """)
    with pytest.raises(NotTried), place_edits([edit(module, 2, 2, "    return (")], None):
        pass
    assert module.step() == 1


def test_a_function_that_would_need_other_variables_is_never_reached(program):
    module = program("""
        def outer(value, other):
            def inner():
                return value
            return inner

        inner = outer(1, 2)
    """)
    with place_edits([edit(module, 3, 3, "        return other")], None) as trial:
        assert module.inner() == 1
        assert trial.list_unreached()


def test_a_file_that_has_changed_since_is_not_tried(program):
    module = program("""
        def step():
            x = 1
            return x
    """)
    change = edit(module, 3, 3, "    return x + 1")
    with open(module.__file__, "w") as file:
        file.write("def step():\n    x = 2\n    return x\n")
    with place_edits([change], None) as trial:
        assert module.step() == 1
        assert trial.list_unreached()
    with pytest.raises(NotTried), place_edits([dataclasses.replace(change, was="    return y")], None):
        pass
