"""What is missing, or is no severity, is said in one sentence; and nothing is loaded that was not asked for."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

import devwidget
import devwidget.integrations
from devwidget.integrations import watch_accelerator

MISSING = """
import sys
sys.modules.update(dict.fromkeys({names!r}))
import devwidget.integrations
try:
    devwidget.integrations.{name}
except devwidget.DevwidgetError as error:
    print(type(error).__name__, isinstance(error, ImportError), error, sep="|")
"""


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "missing", "package"),
    [
        ("TransformersCallback", ["transformers"], "transformers"),
        ("LightningCallback", ["lightning", "pytorch_lightning"], "lightning"),
    ],
)
def test_a_missing_package_is_named(name, missing, package):
    done = subprocess.run([sys.executable, "-c", MISSING.format(names=missing, name=name)], capture_output=True, text=True)
    assert done.stdout == (
        f"MissingPackageError|True|`devwidget.integrations.{name}` needs the package `{package}`, which is not installed here\n"
        f"  help: pip install {package}\n"
    ), done.stderr


@pytest.mark.process
def test_nothing_is_loaded_before_it_is_asked_for():
    program = (
        "import sys, devwidget.integrations; print({'torch', 'transformers', 'lightning', 'accelerate'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "set()\n"


def test_an_unknown_name_has_the_nearest():
    with pytest.raises(AttributeError, match="did you mean 'LightningCallback'"):
        devwidget.integrations.LightninCallback


def test_what_is_no_severity_is_refused_before_the_training():
    pytest.importorskip("transformers")
    with pytest.raises(devwidget.DevwidgetError, match=r"'errors' is not a severity; did you mean 'error'\?"):
        devwidget.integrations.TransformersCallback(fail_on="errors")


def test_an_accelerator_that_has_prepared_nothing_is_refused():
    with (
        pytest.raises(devwidget.DevwidgetError, match="has prepared no model"),
        watch_accelerator(SimpleNamespace(_models=[], _optimizers=[])),
    ):
        pass
