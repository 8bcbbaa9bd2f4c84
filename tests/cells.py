"""Cells of a notebook, run in a namespace of their own as `__main__`, with their source at hand as IPython keeps it."""

import contextlib
import linecache
import sys
import textwrap
import types

from IPython.core.interactiveshell import InteractiveShell


@contextlib.contextmanager
def notebook():
    """A function that runs a cell and gives the namespace."""
    main, before, names = types.ModuleType("__main__"), sys.modules["__main__"], []
    sys.modules["__main__"] = main

    def cell(text):
        name, source = f"<ipython-input-{len(names)}-test>", textwrap.dedent(text).lstrip("\n")
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
        names.append(name)
        exec(compile(source, name, "exec"), vars(main))
        return vars(main)

    try:
        yield cell
    finally:
        sys.modules["__main__"] = before
        for name in names:
            del linecache.cache[name]


@contextlib.contextmanager
def ipython(**settings):
    """A shell without a notebook; afterwards there is none, and nobody knows its cells."""
    main, before = sys.modules["__main__"], set(linecache.cache)
    shell = InteractiveShell.instance(**settings)
    try:
        yield shell
    finally:
        shell.reset()
        sys.modules["__main__"] = main  # in place of the shell's module, which has nothing left in it
        shell.history_manager.end_session()
        InteractiveShell.clear_instance()
        for name in [name for name in linecache.cache if name not in before and shell.compile.format_code_name(name)]:
            del linecache.cache[name]
