"""The folder of a job: named after it, and closed to everybody but its owner."""

from __future__ import annotations

import os
import pathlib

import pytest

from devwidget.extras.ranks.job import job_folder, make_private, ranks_in, refuse_shared, write_whole
from devwidget.records.errors import DevwidgetError


def test_ranks_of_one_job_meet_in_one_folder():
    environ = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500", "RANK": "3"}
    assert job_folder(environ) == job_folder(environ | {"RANK": "0"})
    assert job_folder(environ) != job_folder(environ | {"MASTER_PORT": "29501"})
    assert job_folder(environ | {"DEVWIDGET_RANKS": "/somewhere"}) == pathlib.Path("/somewhere")


def test_the_name_of_a_job_cannot_lead_out_of_the_folder_of_its_user():
    assert job_folder({"SLURM_JOB_ID": "../../etc"}).parent == job_folder({"SLURM_JOB_ID": "7"}).parent


def test_a_folder_is_made_for_its_owner_alone(tmp_path: pathlib.Path):
    made = make_private(tmp_path / "job")
    assert made.stat().st_mode & 0o777 == 0o700
    assert make_private(made) == made


def _open_to_others(path: pathlib.Path) -> None:
    path.mkdir()
    path.chmod(0o755)


def _link(path: pathlib.Path) -> None:
    path.symlink_to(path.parent)


def _file(path: pathlib.Path) -> None:
    path.write_text("")


def _of_another(path: pathlib.Path) -> None:
    path.mkdir(mode=0o700)
    os.chown(path, 65534, 65534)


@pytest.mark.parametrize(("make", "told"), [
    (_open_to_others, "other users have access"),
    (_link, "is not a folder"),
    (_file, "is not a folder|cannot create"),
    pytest.param(_of_another, "belongs to another user", marks=pytest.mark.skipif(os.getuid() != 0, reason="needs root")),
])  # fmt: skip
def test_a_folder_that_others_could_have_prepared_is_refused(tmp_path: pathlib.Path, make, told):
    make(tmp_path / "job")
    with pytest.raises(DevwidgetError, match=told):
        make_private(tmp_path / "job")


def test_a_folder_that_is_not_there_is_refused_when_it_is_asked(tmp_path: pathlib.Path):
    with pytest.raises(DevwidgetError, match="there is no folder"):
        refuse_shared(tmp_path / "none")


def test_a_name_that_no_socket_can_have_is_refused(tmp_path: pathlib.Path):
    with pytest.raises(DevwidgetError, match="too long"):
        make_private(tmp_path / ("long" * 40))


def test_only_files_of_ranks_are_counted(tmp_path: pathlib.Path):
    for name in ("rank-3.sock", "rank-3.json", "rank-12.json", "rank-x.json", "rank--1.sock", "notes.txt"):
        write_whole(tmp_path / name, "")
    assert list(ranks_in(tmp_path)) == [3, 12]
