#!/usr/bin/env -S uv run --script
# /// script
# dependencies = ["nox>=2025.5"]
# ///
"""The wheel in environments of its own, one for each Python and torch; daily work needs `make` alone.

nox -s "wheel-3.12(newest)"                             one of them
nox -s wheel -- tests/rules -q                          all of them, and what pytest shall run
nox -s lint                                             what pre-commit checks

Why both: `make` sets up one `.venv` around a torch that is there already, and CI wants many that borrow nothing.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import nox

nox.needs_version = ">=2025.5"
nox.options.default_venv_backend = "uv|virtualenv"

ROOT = Path(__file__).parent
TORCH = {"oldest": "torch==2.11.*", "pinned": "torch==2.13.0", "newest": "torch"}
PARALLEL = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")


@nox.session(python=["3.11", "3.12", "3.13"])
@nox.parametrize("torch", list(TORCH), ids=list(TORCH))
def wheel(session: nox.Session, torch: str) -> None:
    """Tests of the wheel: a copy of the repository without the folder of the package."""
    folder = Path(session.create_tmp()).resolve()
    wheel = build(session, folder / "dist")
    session.install(TORCH[torch], f"{wheel}[tutorial]", *nox.project.dependency_groups(nox.project.load_toml(), "test"))
    checkout = without_package(session, folder / "checkout")
    session.chdir(checkout)
    session.run("python", "-m", "pytest", *(session.posargs or PARALLEL))


@nox.session
def lint(session: nox.Session) -> None:
    """What .pre-commit-config.yaml names."""
    session.install("pre-commit")
    session.run("pre-commit", "run", "--all-files", "--show-diff-on-failure", *session.posargs)


def build(session: nox.Session, folder: Path) -> Path:
    """The wheel, made from the source distribution, so that both are complete."""
    shutil.rmtree(folder, ignore_errors=True)
    session.install("build")
    session.run("python", "-m", "build", "--outdir", str(folder), str(ROOT))
    return next(folder.glob("*.whl"))


def without_package(session: nox.Session, folder: Path) -> Path:
    """What git knows but `devwidget/`, so that nothing but the wheel can be imported."""
    shutil.rmtree(folder, ignore_errors=True)
    listed = session.run("git", "ls-files", "-z", external=True, silent=True)
    for name in filter(None, str(listed).split("\0")):
        if not name.startswith("devwidget/"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    nox.main()
