"""`.ci/run` on a machine that has next to nothing: a folder of links stands for its programs, and apt only pretends."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("bash", "env", "dirname", "mkdir", "tee", "grep", "tail", "id", "chmod", "cat", "timeout")

APT = """#!/usr/bin/env bash
echo "$*" >> "{log}"
if [ "$1" = install ] && [ ! -e "{bin}/make" ]; then cat > "{bin}/make" <<'END'
#!/usr/bin/env bash
echo "collected"
echo "FAILED tests/test_a.py::test_b - assert 0"
echo "===== 1 failed, 3 passed in 1.00s ====="
exit {status}
END
chmod +x "{bin}/make"; fi
"""


def executable(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


MAKE = """#!/usr/bin/env bash
echo "make $*" >> "{log}"
"""


def bare_machine(
    folder: Path, *, status: int, has_make: bool = False, offered: str = "", browser: str = ""
) -> subprocess.CompletedProcess[str]:
    """Run `.ci/run` in an empty project on it; `make`, once installed, ends with `status`; apt has `offered`."""
    programs, log = folder / "bin", folder / "apt.log"
    programs.mkdir()
    (folder / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", folder / ".ci" / "run")
    for tool in TOOLS:
        (programs / tool).symlink_to(shutil.which(tool) or pytest.skip(f"no {tool} here"))
    executable(programs / "python3", "#!/usr/bin/env bash\nexit 0\n")
    executable(programs / "sudo", '#!/usr/bin/env bash\nshift\nexec "$@"\n')
    executable(programs / "apt-get", APT.format(log=log, bin=programs, status=status))
    executable(programs / "apt-cache", f'#!/usr/bin/env bash\n[ "$2" = "{offered}" ]\n')
    if browser:
        executable(programs / browser, "#!/usr/bin/env bash\n")
    if has_make:
        executable(programs / "make", MAKE.format(log=log))
    return subprocess.run(
        [programs / "bash", ".ci/run"], cwd=folder, env={"PATH": str(programs)}, capture_output=True, text=True
    )


def test_it_runs_what_make_test_leaves_out_once_make_test_has_ended(tmp_path: Path) -> None:
    bare_machine(tmp_path, status=0, has_make=True, browser="chromium-headless-shell")
    assert (tmp_path / "apt.log").read_text().splitlines() == ["make test", "make test-rest"]


def test_it_installs_make_and_chromium_and_prints_the_summary(tmp_path: Path) -> None:
    done = bare_machine(tmp_path, status=0)
    assert "make chromium\n" in (tmp_path / "apt.log").read_text()
    assert done.returncode == 0
    one_run = "===== 1 failed, 3 passed in 1.00s ====="
    assert [line for line in done.stdout.partition("---- summary")[2].splitlines() if line.startswith("=")] == [
        one_run,
        one_run,
    ]
    assert "collected" in (tmp_path / "artifacts" / "test.log").read_text()


def test_a_chromium_without_windows_is_taken_where_apt_has_one(tmp_path: Path) -> None:
    bare_machine(tmp_path, status=0, offered="chromium-headless-shell")
    assert "make chromium-headless-shell\n" in (tmp_path / "apt.log").read_text()


def test_another_browser_is_enough_where_apt_has_none_without_windows(tmp_path: Path) -> None:
    bare_machine(tmp_path, status=0, browser="google-chrome")
    assert "chrom" not in (tmp_path / "apt.log").read_text()


def test_it_fails_when_the_tests_fail_and_names_them(tmp_path: Path) -> None:
    done = bare_machine(tmp_path, status=2)
    assert done.returncode == 2
    assert "FAILED tests/test_a.py::test_b" in done.stdout.partition("---- summary")[2]


def test_packages_of_python_are_installed_while_apt_fetches_the_browser(tmp_path: Path) -> None:
    done = bare_machine(tmp_path, status=0, has_make=True)
    assert done.returncode == 0
    assert "make set-up-test" in (tmp_path / "apt.log").read_text()
