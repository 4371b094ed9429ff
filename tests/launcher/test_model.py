"""The models kept over runs: their folder, and ``dmr model``."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dmr.launcher.cli.dmr import group
from dmr.launcher.models.key import input_of, key_for, program_of
from dmr.launcher.models.store import ModelError, ModelStore, default_folder, read_file
from dmr.resize.phases.knowledge import AtSize, Key, Occurrence, RunRecord, record_of

sys.path.insert(0, str(Path(__file__).parent / "timeline"))

KEY = Key("app.py", "--size 9", "cluster")


def record(run: str, time: float = 1.8e9) -> RunRecord:
    order = [Occurrence("solve", 0, 100), Occurrence("write", 100, 110)]
    sizes = {"solve": [AtSize(4, 0.5, 100, 0.9, 3e9), AtSize(8, 0.3, 100)]}
    return record_of(run, time, sizes, order, steps=110)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelStore:
    monkeypatch.setenv("DMR_MODEL_DIR", str(tmp_path / "model"))
    return ModelStore.default()


def dmr(*words: str) -> Result:
    return CliRunner().invoke(group, ["model", *words], prog_name="dmr")


def test_what_a_run_taught_is_kept_privately(store: ModelStore) -> None:
    store.add(KEY, record("a"))
    store.add(KEY, record("b"))
    store.add(KEY, record("a", 1.9e9))
    book, damaged = store.read()
    assert [(each.run, each.time) for each in book.entries[KEY].runs] == [("b", 1.8e9), ("a", 1.9e9)] and damaged == ()
    assert store.folder.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_mode & 0o077 == 0 for path in store.folder.iterdir())


def test_an_older_record_of_a_run_does_not_replace_a_newer(store: ModelStore) -> None:
    store.add(KEY, record("a", 1.9e9))
    store.add(KEY, record("a", 1.8e9))
    assert store.read()[0].entries[KEY].runs[0].time == 1.9e9


def test_the_oldest_runs_go(store: ModelStore) -> None:
    for number in range(53):
        store.add(KEY, record(f"{number:02d}", 1.8e9 + number))
    runs = store.read()[0].entries[KEY].runs
    assert len(runs) == 50 and runs[0].run == "03"


def test_a_damaged_file_is_named_and_passed_over(store: ModelStore) -> None:
    store.add(KEY, record("a"))
    (store.folder / "x.json").write_text("{]")
    book, damaged = store.read()
    assert KEY in book.entries and "x.json" in damaged[0]
    assert "passed over" in dmr("show").stderr


def test_only_the_files_of_a_program_are_read_for_it(store: ModelStore) -> None:
    store.add(KEY, record("a"))
    store.add(Key("other.py"), record("b"))
    book, _ = store.read("app.py")
    assert set(book.entries) == {KEY} and len(store.read()[0].entries) == 2


def test_a_folder_that_can_not_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ModelError, match="DMR_MODEL_DIR"):
        ModelStore(tmp_path / "file" / "model").add(KEY, record("a"))


def test_the_folder_is_the_user_s() -> None:
    assert default_folder({"XDG_DATA_HOME": "/data"}) == Path("/data/dmr/model")
    assert default_folder({"XDG_DATA_HOME": "relative"}) == Path(os.path.expanduser("~/.local/share/dmr/model"))


def test_show(store: ModelStore) -> None:
    assert "nothing is known yet" in dmr("show").output
    store.add(KEY, record("a"))
    text = dmr("show", "app.py").output
    assert "app.py on cluster, input --size 9: 1 run" in text and "comes as: solve (100 steps)" in text
    (found,) = json.loads(dmr("show", "--json").output)
    assert [size["nodes"] for size in found["phases"][0]["sizes"]] == [4, 8]
    assert json.loads(dmr("show", "other.py", "--json").output) == []


def test_export_and_import(store: ModelStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert dmr("export").exit_code == 1
    store.add(KEY, record("a"))
    file = tmp_path / "out.json"
    assert "1 run " in dmr("export", "-o", str(file)).output
    assert json.loads(dmr("export", "app.py").output) == json.loads(file.read_text())
    monkeypatch.setenv("DMR_MODEL_DIR", str(tmp_path / "elsewhere"))
    for _ in range(2):
        assert dmr("import", str(file)).exit_code == 0
    assert ModelStore.default().read()[0] == read_file(file)
    file.write_text("{}")
    found = dmr("import", str(file))
    assert found.exit_code == 1 and "no model" in found.stderr


def test_forget(store: ModelStore) -> None:
    other = Key("app.py", "--size 1", "cluster")
    store.add(KEY, record("a"))
    store.add(other, record("b"))
    assert dmr("forget").exit_code == 2
    assert "1 run " in dmr("forget", "app.py", "--input", "--size 9").output
    assert set(store.read()[0].entries) == {other}
    assert dmr("forget", "unheard").exit_code == 1
    assert dmr("forget", "--all").exit_code == 0
    assert store.read()[0].entries == {}


def test_learn_from_a_run_that_ended(store: ModelStore, tmp_path: Path) -> None:
    from made_run import three_phases

    folder = three_phases(tmp_path / "run").write()
    assert "mesh, solve, write" in dmr("learn", str(folder)).output
    (entry,) = store.read()[0].entries.values()
    assert entry.key.program == "app.py" and entry.sizes("solve") == (4, 8)
    dmr("learn", "--as", "small", str(folder))
    assert {key.input for key in store.read()[0].entries} == {"--size 9", "small"}


@pytest.mark.parametrize(
    ("command", "program", "arguments"),
    [
        ("python -u app.py --size 9", "app.py", ("--size", "9")),
        ("/usr/bin/python3.11 -m my.app x", "my.app", ("x",)),
        ("./solver.sh input", "solver.sh", ("input",)),
        ("bash run.sh", "run.sh", ()),
        ("env OMP_NUM_THREADS=1 ./a.out", "a.out", ()),
        ("python -W error /a/b.py", "b.py", ()),
        ("python", "python", ()),
    ],
)
def test_the_program_is_what_runs(command: str, program: str, arguments: tuple[str, ...]) -> None:
    assert program_of(command.split()) == (program, arguments)


def test_inputs_have_classes() -> None:
    assert input_of(["--size", "a b"]) == "--size 'a b'"
    assert len(input_of(["x" * 500])) == 80 and input_of(["x" * 500]) != input_of(["x" * 501])
    note = {"event": "note", "note": "input", "data": {"name": "large"}}
    assert key_for(["a.out", "x"], "m", [note]).input == "large"
    assert key_for(["a.out", "x"], "m", [note], "chosen").input == "chosen"
