#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.5"]
# ///
"""The wheel in environments of its own, one for each Python and torch; daily work needs `make` alone.

nox -s "wheel-3.12(newest)"                             one of them
nox -s wheel -- tests/rules -q                          all of them, and what pytest shall run
nox -s "older(2.10)"                                    the parts that older torch has, beside one of them
nox -s "older(2.8)"                                     and each dependency at the lower bound that pyproject.toml gives it
nox -s package                                          what is published: complete, and as an index wants it
nox -s hosts                                            a click in marimo, Notebook 7, what VS Code and Colab show; JupyterLite
nox -s server-documents                                 a click in JupyterLab where the server runs the cells
nox -s binder                                           the environment of Binder: its size, and every notebook in it
nox -s lint                                             what pre-commit checks

Why both: `make` sets up one `.venv` around a torch that is there already, and CI wants many that borrow nothing.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv|virtualenv"

ROOT = Path(__file__).parent
PROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
TORCH = {"pinned": "torch==2.13.0", "newest": "torch"}
OLDER = {"2.8": "3.11", "2.10": "3.13"}
"""torch -> a Python for which it was built."""
FIRST_NOTEBOOK = "tests/test_notebooks.py::test_a_notebook_runs_and_says_nothing_on_stderr[01-first-look]"
ON_OLDER = ("tests/test_readme.py", FIRST_NOTEBOOK, "tests/capture", "tests/rules", "tests/gpus", "tests/test_corpus.py")
PIP_NAMES = {"pytorch": "torch"}
"""What conda calls otherwise than pip."""
NOT_FROM_AN_INDEX = ("conda-forge", "python=", "pip")
MOST_INSTALLED_BYTES = 2_500_000_000
HOSTS = ("marimo", "jupyterlite-pyodide-kernel")
IN_PYODIDE = ("--no-deps", "--only-binary=:all:", "--platform=any", "--python-version=3.14", "-r", "tests/hosts/pyodide.txt")
"""How pip gets the wheels that Pyodide would fetch."""
IN_PYTHON_ALONE = ("--no-deps", "--no-binary=:all:", "markupsafe")
"""What Pyodide has in C; without a compiler its wheel is for any platform."""
IN_SDIST = {".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "README.zh.md", "pyproject.toml"}
"""Beside the package."""
PARALLEL = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


@nox.session(python=["3.11", "3.12", "3.13", "3.14"])
@nox.parametrize("torch", list(TORCH), ids=list(TORCH))
def wheel(session: nox.Session, torch: str) -> None:
    """The whole suite."""
    run_tests(session, [TORCH[torch]], PARALLEL)


@nox.session
@nox.parametrize("python,torch", [nox.param(python, torch, id=torch) for torch, python in OLDER.items()])
def older(session: nox.Session, torch: str) -> None:
    """Recording, rules, virtual GPUs and the corpus; a test of what this torch lacks skips, and says so."""
    run_tests(session, lower_bounds() if torch == next(iter(OLDER)) else [f"torch=={torch}.*"], (*ON_OLDER, *PARALLEL))


def run_tests(session: nox.Session, pins: list[str], arguments: tuple[str, ...]) -> None:
    """Tests of the wheel beside these versions: in a copy without its folder, so that the wheel is what is imported."""
    folder = Path(session.create_tmp()).resolve()
    session.install(*pins, f"{build(session, folder / 'dist')}[lab,tutorial]", *nox.project.dependency_groups(PROJECT, "test"))
    session.chdir(checked_out(session, folder / "checkout", without="devwidget/"))
    session.run("python", "-m", "pytest", "-m", "not fuzz", *(session.posargs or arguments))


@nox.session(python="3.13")
def hosts(session: nox.Session) -> None:
    """A click in each notebook that can be had: what docs/reference/versions.md says was seen."""
    wheel = build(session, ROOT / "tests" / "hosts" / "dist")
    session.install("pip", "torch", *HOSTS, f"{wheel}[lab]", *nox.project.dependency_groups(PROJECT, "test"))
    session.run_install("python", "-m", "pip", "download", f"--dest={wheel.parent}", *IN_PYODIDE)
    session.run_install("python", "-m", "pip", "wheel", f"--wheel-dir={wheel.parent}", *IN_PYTHON_ALONE, env={"CC": "false"})
    session.run_install("npm", "install", "--prefix", "tests/hosts", "--no-audit", "--no-fund", external=True)
    session.run("python", "-m", "pytest", "tests/hosts", *session.posargs)


@nox.session(name="server-documents", python="3.13")
def server_documents(session: nox.Session) -> None:
    """A click in JupyterLab with jupyter-server-documents, which would replace the server of all other tests."""
    wheel = build(session, Path(session.create_tmp()).resolve() / "dist")
    session.install("torch", "jupyter-server-documents", f"{wheel}[lab]", *nox.project.dependency_groups(PROJECT, "test"))
    session.run("python", "-m", "pytest", "tests/hosts/test_server_documents.py", *session.posargs)


@nox.session
def package(session: nox.Session) -> None:
    """What an index checks, and that no file of the package is missing in either."""
    wheel = build(session, Path(session.create_tmp()).resolve() / "dist")
    session.install("twine")
    session.run("twine", "check", "--strict", *map(str, wheel.parent.iterdir()))
    (sdist,) = wheel.parent.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        found = {each.name.partition("/")[2] for each in archive.getmembers() if each.isfile()}
    compare(session, sdist, found, IN_SDIST)
    with zipfile.ZipFile(wheel) as archive:
        found = set(archive.namelist())
        compare(session, wheel, found, {name for name in found if ".dist-info/" in name})
        check_readme(session, archive)


@nox.session(python="3.12", venv_backend="virtualenv")
def binder(session: nox.Session) -> None:
    """The environment of Binder from an index in place of conda, and every notebook in it."""
    listed = re.findall(r"^  - (.*)$", (ROOT / "binder" / "environment.yml").read_text(encoding="utf-8"), re.MULTILINE)
    session.install(*(as_pip_says(each) for each in listed if not each.startswith(NOT_FROM_AN_INDEX)))
    session.env["JUPYTER_DATA_DIR"] = session.create_tmp()  # `jupyter trust` writes there
    checkout = checked_out(session, Path(session.create_tmp()).resolve() / "checkout")
    session.chdir(checkout)
    session.run("bash", "binder/postBuild", external=True)
    size = sum(path.stat().st_size for path in Path(session.virtualenv.location).rglob("*") if path.is_file())
    cuda = session.run("python", "-c", "import torch; print(torch.version.cuda or '')", silent=True)
    session.log(f"installed: {size / 1e9:.2f} GB" + (", with a torch for GPUs" if cuda.strip() else ""))
    if size > MOST_INSTALLED_BYTES and not cuda.strip():
        session.error(f"more than {MOST_INSTALLED_BYTES / 1e9} GB")
    session.run("bash", "binder/start", "python", "notebooks/refresh.py", "--check", *session.posargs, external=True)


@nox.session
def lint(session: nox.Session) -> None:
    """What .pre-commit-config.yaml names."""
    session.install("pre-commit")
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure", *session.posargs)


def build(session: nox.Session, folder: Path) -> Path:
    """The wheel, made from the source distribution, so that both are complete."""
    shutil.rmtree(folder, ignore_errors=True)
    session.install("build")
    session.run_install("python", "-m", "build", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def lower_bounds() -> list[str]:
    """Each dependency of the package and of its notebooks at the oldest version that pyproject.toml allows."""
    extras = PROJECT["project"]["optional-dependencies"]
    named = [*PROJECT["project"]["dependencies"], *extras["lab"], *extras["tutorial"]]
    return [re.sub(r">=([\d.]+).*", r"==\1", each) for each in named]


def as_pip_says(requirement: str) -> str:
    """A requirement of conda: `pytorch=2.13.*=cpu_*` is `torch==2.13.*`."""
    name, version = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
    return PIP_NAMES.get(name, name) + re.sub(r"^=([\d.*]+)(=.*)?$", r"==\1", version)


def compare(session: nox.Session, archive: Path, found: set[str], other: set[str]) -> None:
    """An archive has every file of the package, those other ones, and nothing else."""
    wanted = {name for name in known_to_git() if name.startswith("devwidget/")} | other
    missing, beyond = sorted(wanted - found), sorted(found - wanted)
    if missing or beyond:
        session.error(f"{archive.name}: missing {missing}, beyond {beyond}")


def check_readme(session: nox.Session, wheel: zipfile.ZipFile) -> None:
    """What an index shows has no link or picture that only the repository has."""
    (name,) = [each for each in wheel.namelist() if each.endswith("/METADATA")]
    if dead := re.findall(r"\]\((?![a-z]+:)[^)]*\)|<img.*", wheel.read(name).decode()):
        session.error(f"an index would show what leads nowhere: {dead}")


def known_to_git() -> list[str]:
    """The files of the repository."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name]


def checked_out(session: nox.Session, folder: Path, without: str = "none of them/") -> Path:
    """A copy of what git knows; what runs there has its temporary files outside.

    nox's own folder for them lies in this project, whose settings pytest would apply to suites of tests that are written there.
    """
    session.env["TMPDIR"] = tempfile.gettempdir()
    shutil.rmtree(folder, ignore_errors=True)
    for name in known_to_git():
        if not name.startswith(without):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    nox.main()
