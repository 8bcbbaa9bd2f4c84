"""Make `.venv` with devwidget in it, once; nothing ever replaces a torch that is already there.

    python .ci/set_up.py lab     what a user needs
    python .ci/set_up.py test    what the test suite needs besides
    python .ci/set_up.py bench   and the tools that the benchmarks compare it with

Standard library only, and readable by old Pythons, so that they can say what is wrong.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import venv

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
PYTHON = os.path.join(VENV, "Scripts" if os.name == "nt" else "bin", "python")
CONSTRAINTS = os.path.join(VENV, "devwidget-constraints.txt")
OVERRIDES = os.path.join(ROOT, ".ci", "overrides.json")
"""Of JupyterLab: it asks the network for no news, and no question about them lies over the panel."""

OLDEST = (3, 11)
TORCH = os.environ.get("TORCH", "torch==2.13.0")

JUPYTER = ["jupyterlab>=4.2", "notebook>=7.2", "ipykernel", "ipywidgets>=8.1.5,<9", "anywidget>=0.11"]
"""Must stand in `.venv` itself even if the Python around it has them: JupyterLab looks for its files beside its Python."""

GROUPS = {"lab": [], "test": ["dev"], "bench": ["dev", "bench"]}
"""Dependency groups of pyproject.toml; the pip of a new environment may be too old for `--group`."""

TORCH_VERSION = "import importlib.metadata as m; print(m.version('torch'))"
FOLDERS = "import sysconfig; print(sysconfig.get_path('purelib')); print(sysconfig.get_path('platlib'))"


def main(what):
    """Set up, or do nothing if it is done."""
    if sys.version_info < OLDEST:
        found = "%d.%d" % sys.version_info[:2]  # noqa: UP031  an old Python must be able to read this file
        sys.exit("devwidget needs Python 3.11 or newer, this is %s: try  make lab PYTHON=python3.12" % found)  # noqa: UP031
    stamp = os.path.join(VENV, "devwidget-" + what + ".stamp")
    wanted = fingerprint()
    if os.path.exists(PYTHON) and read(stamp) == wanted:
        return
    make_venv()
    install(what)
    settings = os.path.join(VENV, "share", "jupyter", "lab", "settings")
    os.makedirs(settings, exist_ok=True)
    shutil.copy(OVERRIDES, settings)
    write(stamp, wanted)


def fingerprint():
    """Changes when the set-up has to be done again."""
    parts = [read(os.path.join(ROOT, "pyproject.toml")), read(os.path.abspath(__file__)), read(OVERRIDES), sys.version, TORCH]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def make_venv():
    """A new environment, unless there is one. With a torch in the Python that runs this, it sees that torch."""
    if os.path.exists(PYTHON):
        return
    borrows = version_of_torch(sys.executable) is not None
    say("making .venv" + (" that uses the torch installed already" if borrows else ""))
    try:
        venv.create(VENV, with_pip=True, symlinks=os.name != "nt", system_site_packages=borrows)
    except subprocess.CalledProcessError:
        sys.exit("Python cannot make environments here; on Debian and Ubuntu install the package python3-venv")
    if borrows and sys.prefix != sys.base_prefix:
        see_outer_environment()


def see_outer_environment():
    """An environment made from within another sees the Python below both, not the outer one: name its folders."""
    own, outer = (subprocess.check_output([python, "-c", FOLDERS], text=True) for python in (PYTHON, sys.executable))
    write(os.path.join(own.splitlines()[0], "devwidget-outer.pth"), outer)


def install(what):
    """torch first (a plain `pip install` of the rest would choose one itself), then devwidget; both keep that torch."""
    if version_of_torch(PYTHON) is None:
        pip("install", TORCH)
    write(CONSTRAINTS, "torch==" + version_of_torch(PYTHON) + "\n")
    if is_borrowing():
        pip("install", "--ignore-installed", "--constraint", CONSTRAINTS, *JUPYTER)
    wanted = [requirement for group in GROUPS[what] for requirement in in_group(group)]
    pip("install", "--constraint", CONSTRAINTS, "--editable", ".[lab,tutorial]", *wanted)


def in_group(name):
    """Requirements of a dependency group (PEP 735), those of the groups that it includes first."""
    import tomllib  # newer than the Pythons that must be able to read this file

    groups = tomllib.loads(read(os.path.join(ROOT, "pyproject.toml")))["dependency-groups"]
    for each in groups[name]:
        if isinstance(each, str):
            yield each
        else:
            yield from in_group(each["include-group"])


def is_borrowing():
    """Whether the environment sees packages from outside."""
    return "include-system-site-packages = true" in read(os.path.join(VENV, "pyvenv.cfg"))


def version_of_torch(python):
    """Version of the torch that a Python sees, None without one."""
    found = subprocess.run([python, "-c", TORCH_VERSION], capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else None


def pip(*arguments):
    """Run pip of the environment; it says itself what went wrong."""
    say("pip " + " ".join(arguments))
    command = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--quiet", *arguments]
    if subprocess.call(command, cwd=ROOT) != 0:
        sys.exit("this step failed: " + " ".join(command))


def read(path):
    """Text of a file, "" without one."""
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    """Replace a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def say(text):
    """Tell what takes so long."""
    print("set-up: " + text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
