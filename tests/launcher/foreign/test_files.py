"""When a restart file is complete, what is recorded of it, and what is never restarted from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dmr.launcher.foreign.catalogue import FILE, Catalogue, Changed, Record
from dmr.launcher.foreign.description import Files, ProgressLog
from dmr.launcher.foreign.log import Log
from dmr.launcher.foreign.scan import Completeness, Finder

PROGRESS = ProgressLog(re.compile(r"^step (\d+)"))


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


class Watch:
    """Completeness under a clock of the test's own."""

    def __init__(self, folder: Path, files: Files, progress: ProgressLog = PROGRESS) -> None:
        self.clock = Clock()
        self.completeness = Completeness(files, Finder(files, progress, folder), self.clock)

    def after(self, seconds: float, *, moved: bool = True, ended: bool | None = None) -> list[int | None]:
        self.clock.now += seconds
        if moved:
            self.completeness.went_on()
        found = self.completeness.look(ended=ended)
        for each in found:
            self.completeness.take(each.found)
        return [each.found.step for each in found]


def test_a_file_is_complete_when_it_rests_and_the_program_goes_on(tmp_path: Path) -> None:
    (tmp_path / "r.5").write_text("left from another run")
    watch = Watch(tmp_path, Files(("r.{step}",), settle=2.0))
    assert watch.after(10) == []
    (tmp_path / "r.10").write_text("half")
    assert watch.after(1) == []
    (tmp_path / "r.10").write_text("half and half")
    assert watch.after(1.5) == []
    assert watch.after(1.5) == []
    assert watch.after(1) == [10]
    assert watch.after(10) == []
    (tmp_path / "r.5").write_text("written again")
    assert watch.after(1) == []
    assert watch.after(5, moved=False) == []  # it may have died in the middle
    assert watch.after(5, moved=False, ended=False) == []
    assert watch.after(1) == [5]


def test_the_end_of_the_program_and_its_death(tmp_path: Path) -> None:
    watch = Watch(tmp_path, Files(("r.{step}",), settle=60.0))
    (tmp_path / "r.1").write_text("x")
    (tmp_path / "r.2").write_text("")
    assert watch.after(1, ended=False) == []
    assert watch.after(1, ended=True) == [1]  # an empty one never is


def test_a_marker_says_so_and_an_old_one_does_not(tmp_path: Path) -> None:
    (tmp_path / "state.done").write_text("")
    watch = Watch(tmp_path, Files(("state",), settle=1.0, marker="state.done"))
    (tmp_path / "state").write_text("x")
    assert watch.after(0) == [] and watch.after(5) == []
    (tmp_path / "state.done").write_text("2")
    assert watch.after(1, moved=False) == [None]
    (tmp_path / "state").write_text("xy")
    assert watch.after(0) == [] and watch.after(5) == []
    (tmp_path / "state.done").write_text("333")
    assert watch.after(0, moved=False, ended=False) == [None]


def test_a_line_of_the_log_says_so(tmp_path: Path) -> None:
    watch = Watch(tmp_path, Files(("r.{step}",), settle=1.0, log=re.compile(r"wrote (?P<step>\d+)")))
    (tmp_path / "r.1").write_text("x")
    (tmp_path / "r.2").write_text("x")
    assert watch.after(0) == [] and watch.after(5) == []
    watch.completeness.said(2)
    assert watch.after(1) == [2]


def test_all_files_of_a_set_and_folders_have_to_be_there(tmp_path: Path) -> None:
    watch = Watch(tmp_path, Files(("part?/{step}", "head.{step}"), settle=1.0))
    for part in ("part0", "part1"):
        (tmp_path / part / "7").mkdir(parents=True)
        (tmp_path / part / "7" / "u").write_text("12345")
    assert watch.after(0) == [] and watch.after(5) == []
    (tmp_path / "head.7").write_text("x")
    assert watch.after(0) == []
    clock = watch.clock
    clock.now += 5
    watch.completeness.went_on()
    (complete,) = watch.completeness.look()
    assert complete.found.bytes == 11 and complete.found.roots == ("head.7", "part0/7", "part1/7")


def test_steps_that_are_times(tmp_path: Path) -> None:
    progress = ProgressLog(re.compile(r"^Time = (\S+)"), unit=0.005)
    (tmp_path / "0.25").write_text("x")
    assert set(Finder(Files(("{step}",)), progress, tmp_path).find()) == {50}


def record(catalogue: Catalogue, folder: Path, name: str, **options: Any) -> Record:
    finder = Finder(Files((name,)), PROGRESS, folder)
    (found,) = finder.find().values()
    title = catalogue.free_name(len(catalogue.records()), 1)
    parts = catalogue.seal(found, title, **{"digest": True, "copy": False, **options})
    made = Record(title, len(catalogue.records()), found.bytes, 0.1, 1.0, 1, 2, found.roots, parts)
    catalogue.add(made)
    return made


@pytest.fixture
def catalogue(tmp_path: Path) -> Catalogue:
    (tmp_path / "checkpoints").mkdir()
    return Catalogue(tmp_path / "checkpoints", tmp_path)


def test_damage_is_found(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    made = record(catalogue, tmp_path, "a")
    assert catalogue.problem(made) is None and catalogue.root(made) == "a"
    (tmp_path / "a").write_bytes(bytes(999) + b"\1")
    assert "digest differs" in str(catalogue.problem(made))
    (tmp_path / "a").write_bytes(bytes(999))
    assert "has 999 bytes instead of 1000" in str(catalogue.problem(made))
    (tmp_path / "a").unlink()
    assert "No such file" in str(catalogue.problem(made))
    catalogue.mark_bad(made, "seen")
    assert catalogue.records()[0].bad == "seen"


def test_without_a_digest_a_file_written_again_is_found(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(bytes(1000))
    made = record(catalogue, tmp_path, "a", digest=False)
    assert catalogue.problem(made) is None
    (tmp_path / "a").write_bytes(bytes(1000))
    assert "was written again" in str(catalogue.problem(made))


def test_copies_outlive_the_original_and_only_the_newest_are_kept(catalogue: Catalogue, tmp_path: Path) -> None:
    made = []
    for content in (b"one", b"two", b"three"):
        (tmp_path / "state").write_bytes(content)
        made.append(record(catalogue, tmp_path, "state", copy=True))
        catalogue.prune(2, delete=False)
    (tmp_path / "state").write_bytes(b"par")
    assert [each.name for each in catalogue.records()] == [made[2].name, made[1].name]
    assert all(catalogue.problem(each) is None for each in made[1:])
    copies = sorted(path.name for path in catalogue.checkpoints.iterdir() if path.is_dir())
    assert copies == [made[1].name, made[2].name]
    assert (tmp_path / catalogue.root(made[2])).read_bytes() == b"three"
    catalogue.restore(made[1])
    assert (tmp_path / "state").read_bytes() == b"two"


def test_only_what_was_recorded_is_deleted(catalogue: Catalogue, tmp_path: Path) -> None:
    for step in range(4):
        (tmp_path / f"r.{step}").write_text(f"{step}")
        record(catalogue, tmp_path, f"r.{step}")
    (tmp_path / "r.1").write_text("the user's own now")
    catalogue.prune(2, delete=True)
    assert sorted(path.name for path in tmp_path.glob("r.*")) == ["r.1", "r.2", "r.3"]


def test_a_file_that_changes_while_it_is_read_is_not_recorded(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    (found,) = Finder(Files(("a",)), PROGRESS, tmp_path).find().values()
    (tmp_path / "a").write_text("xy")
    with pytest.raises(Changed):
        catalogue.seal(found, "step", digest=True, copy=True)
    assert list(catalogue.checkpoints.iterdir()) == []


def test_a_line_that_a_crash_cut_short_is_passed_over(catalogue: Catalogue, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x")
    first = record(catalogue, tmp_path, "a")
    with open(catalogue.checkpoints / FILE, "a") as stream:
        stream.write('{"name": "step-00000')
    second = record(catalogue, tmp_path, "a")
    assert [each.name for each in catalogue.records()] == [second.name, first.name]


def test_the_log_is_followed_when_it_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("step 900\n")
    log = Log(PROGRESS, Files(("r",)), path)
    assert log.look().step is None  # of an earlier run
    with open(path, "a") as stream:
        stream.write("step 1\nstep 2")
    assert log.look().step == 1
    with open(path, "a") as stream:
        stream.write("7\r")
    assert log.look().step == 27
    path.write_text("step 3\n")
    assert log.look().step == 3
    with open(path, "a") as stream:
        stream.write("step 44")
    assert log.look(last=True).step == 44
