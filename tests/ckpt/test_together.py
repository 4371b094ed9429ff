"""``dmr ckpt verify``, ``export``, ``import`` and ``convert`` by ranks together: the same as by one process."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dmr import ckpt
from dmr.ckpt import ArrayItem, Block, BlockCyclic, Replicated, StorageError, Store, ValueItem
from dmr.ckpt.comm.group import Group
from dmr.ckpt.tools.ahead import ahead
from dmr.ckpt.tools.export import export
from dmr.ckpt.transfer import plan

from .conftest import starter

WHOLE = np.random.default_rng(3).random((203, 31))
Run = Callable[..., subprocess.CompletedProcess[str]]
BODY = "from dmr.launcher.cli.dmr import main; main()"


@pytest.fixture(params=[1, 3])
def dmr(request: pytest.FixtureRequest) -> Run:
    """Return a way to run ``dmr`` on one process, and on three ranks."""
    command: list[str] = []
    if request.param > 1:
        found = starter()
        if found is None:
            pytest.skip("no mpirun and no mpiexec")
        command = [*found, "-n", str(request.param)]
        pytest.importorskip("mpi4py")
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        body = f"import sys; sys.argv = ['dmr', *{list(map(str, arguments))!r}]; {BODY}"
        return subprocess.run(
            [*command, sys.executable, "-c", body],
            env=environment, stdin=subprocess.DEVNULL, timeout=60, capture_output=True, text=True, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(plan, "PIECE", 4096)
    with Store(tmp_path / "made") as store:
        items = {
            "u": ArrayItem(WHOLE, Block(axes=(0, 1)), WHOLE.shape),
            "n": ArrayItem(np.arange(2), Block(), (2,)),
            "c": ArrayItem(np.array(7.5), Replicated(), ()),
            "none": ArrayItem(np.zeros((0, 3)), Block(), (0, 3)),
            "k": ValueItem({"n": 1}),
        }
        return store.save(5, items).path


def spoil(path: Path, piece: int) -> None:
    with ckpt.open(path) as file:
        entry = next(each for each in file.manifest.arrays if each.name == "u")
    raw = bytearray(path.read_bytes())
    raw[entry.offset + 4096 * piece + 17] ^= 4
    path.write_bytes(raw)


def test_verify_says_once_what_any_rank_finds(dmr: Run, path: Path) -> None:
    good = dmr("ckpt", "verify", path)
    assert good.returncode == 0 and good.stdout.count("good") == 1, good.stderr
    spoil(path, 2)
    spoil(path, 11)
    bad = dmr("ckpt", "verify", path, "--json")
    (report,) = json.loads(bad.stdout)
    assert bad.returncode == 1 and len(report["problems"]) == 2
    assert "elements 1024 to 1535" in report["problems"][0] and "elements 5632 to 6143" in report["problems"][1]


def test_export_writes_the_whole(dmr: Run, path: Path, tmp_path: Path) -> None:
    found = dmr("ckpt", "export", path, tmp_path / "plain")
    assert found.returncode == 0, found.stderr
    assert (np.load(tmp_path / "plain" / "u.npy") == WHOLE).all()
    assert np.load(tmp_path / "plain" / "c.npy") == 7.5 and np.load(tmp_path / "plain" / "none.npy").shape == (0, 3)
    assert found.stdout.count("u.npy") == 1
    for name in ("all.npz", "all.h5"):
        assert dmr("ckpt", "export", path, tmp_path / name).returncode == 0
    with np.load(tmp_path / "all.npz") as file:
        assert (file["u"] == WHOLE).all() and file["n"].tolist() == [0, 1]
    import h5py

    with h5py.File(tmp_path / "all.h5") as file:
        assert (file["u"][...] == WHOLE).all() and file.attrs["step"] == 5


@pytest.mark.parametrize("name", ["plain", "u.npy", "all.npz", "all.h5"])
def test_what_could_not_be_exported_leaves_nothing(dmr: Run, path: Path, tmp_path: Path, name: str) -> None:
    spoil(path, 11)
    found = dmr("ckpt", "export", path, tmp_path / name, *(["--array", "u"] if name == "u.npy" else []))
    assert found.returncode == 1
    assert found.stderr.count("elements 5632 to 6143") == 1 and "Traceback" not in found.stderr
    left = [each for each in tmp_path.rglob("*") if each.is_file() and "made" not in each.parts]
    assert all("u" not in each.name and "all" not in each.name and each.name[0] != "." for each in left)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to mount a small file system")
@pytest.mark.parametrize("name", ["u.npy", "all.npz", "all.h5"])
def test_a_disk_that_is_full(dmr: Run, path: Path, tmp_path: Path, name: str) -> None:
    """The file system has room for half of it."""
    disk = tmp_path / "disk"
    disk.mkdir()
    size = f"size={WHOLE.nbytes // 2 // 4096 * 4096}"
    if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", disk], check=False).returncode:
        pytest.skip("tmpfs can't be mounted here")
    try:
        found = dmr("ckpt", "export", path, disk / name, *(["--array", "u"] if name == "u.npy" else []))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    said = [line for line in found.stderr.splitlines() if "dmr" in line or "rror" in line]
    assert found.returncode == 1 and len(said) == 1 and "No space left on device" in said[0], found.stderr


def test_files_of_any_header_and_file_systems_without_links(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*of: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "posix_fallocate", refuse)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:1000], at))
    kind = np.dtype([("ü" * 30 + str(number), "<f4") for number in range(300)])
    table = np.arange(600, dtype="<f4").view(kind)
    with Store(tmp_path / "wide") as store:
        wide = store.save(1, {"t": ArrayItem(table, Replicated(), table.shape)}).path
    for source, name, expected in [(path, "u", WHOLE), (wide, "t", table)]:
        target = tmp_path / ("long " * 49 + f"{name}.npy")
        with ckpt.open(source) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert export(file, target, [name]) == [target]
            with pytest.raises(StorageError, match="exists already"):
                export(file, target, [name])
        assert np.load(target, max_header_size=1 << 20).tobytes() == expected.tobytes()
    assert not [each for each in tmp_path.iterdir() if each.name[0] == "."]


def test_nothing_is_written_over(dmr: Run, path: Path, tmp_path: Path) -> None:
    (tmp_path / "u.npy").write_text("mine")
    found = dmr("ckpt", "export", path, tmp_path / "u.npy", "--array", "u")
    assert found.returncode == 1 and "exists already" in found.stderr
    assert (tmp_path / "u.npy").read_text() == "mine"


def test_import_and_convert_give_the_same_bytes_on_any_number_of_ranks(dmr: Run, tmp_path: Path) -> None:
    import h5py

    np.save(tmp_path / "u.npy", WHOLE)
    np.save(tmp_path / "f.npy", np.asfortranarray(WHOLE[:9]))
    with h5py.File(tmp_path / "more.h5", "w") as file:
        file["x"] = WHOLE[:50]
        file["packed"] = np.zeros((40, 5), np.int16)
        file.create_dataset("chunked", data=np.arange(100), chunks=(7,), compression="gzip")
    files = [tmp_path / "u.npy", tmp_path / "f.npy", tmp_path / "more.h5"]
    layout = ["--layout", "u=block:0,1", "--value", "t=1.5"]
    found = dmr("ckpt", "import", *files, "--to", tmp_path / "c", *layout, "--step", 7)
    assert found.returncode == 0, found.stderr
    with Store(tmp_path / "alone") as store:
        alone = store.save(7, {
            "u": ArrayItem(WHOLE, Block(axes=(0, 1)), WHOLE.shape),
            "f": ArrayItem(WHOLE[:9], Block(), (9, 31)),
            "x": ArrayItem(WHOLE[:50], Block(), (50, 31)),
            "packed": ArrayItem(np.zeros((40, 5), np.int16), Block(), (40, 5)),
            "chunked": ArrayItem(np.arange(100), Block(), (100,)),
            "t": ValueItem(1.5),
        }).path  # fmt: skip
    (made,) = (tmp_path / "c").glob("step-*.h5")
    assert made.read_bytes() == alone.read_bytes()

    found = dmr("ckpt", "convert", made, "--to", tmp_path / "d", "--dtype", "u=float32", "--layout", "x=block:0,1")
    assert found.returncode == 0, found.stderr
    (converted,) = (tmp_path / "d").glob("step-*.h5")
    with ckpt.open(converted) as file:
        assert file.verify() == []
        assert (file["u"] == WHOLE.astype("f4")).all() and (file["x"] == WHOLE[:50]).all()
        assert file.specs["x"].layout == Block(axes=(0, 1)) and file.manifest.ranks == 1


def test_mistakes_end_all_ranks(dmr: Run, path: Path, tmp_path: Path) -> None:
    for arguments, said in (
        (("convert", path, "--to", tmp_path / "d", "--dtype", "w=float32"), "no array 'w'"),
        (("convert", path, "--to", tmp_path / "d", "--dtype", "u=int8"), "would not keep its values; unsafe (--un"),
        (("export", path, tmp_path / "u.txt"), "write to .npy"),
        (("verify", tmp_path / "made", "--step", "9"), "no checkpoint of step 9"),
        (("export", path, "/proc/no/u.npy", "--array", "u"), "/proc/no"),
    ):
        found = dmr("ckpt", *arguments)
        assert found.returncode != 0 and said in found.stderr and "Traceback" not in found.stderr, found.stderr


def test_layouts_of_any_kind_can_be_converted_to(dmr: Run, tmp_path: Path) -> None:
    with Store(tmp_path / "made") as store:
        path = store.save(1, {"u": ArrayItem(WHOLE, BlockCyclic((4, 4)), WHOLE.shape)}).path
    assert dmr("ckpt", "convert", path, "--to", tmp_path / "d", "--layout", "u=block:0").returncode == 0
    (converted,) = (tmp_path / "d").glob("step-*.h5")
    with ckpt.open(converted) as file:
        assert (file.read("u") == WHOLE).all()


def test_work_is_handed_over_in_order_and_not_all_at_once() -> None:
    begun: list[int] = []

    def work(number: int) -> int:
        begun.append(number)
        return number * 2

    found = ahead(work, range(100), threads=3)
    assert next(found) == 0 and max(begun) <= 6
    assert list(found) == [2 * each for each in range(1, 100)]


def test_shares_make_up_the_whole() -> None:
    for ranks in (1, 2, 3, 7):
        groups = [Group() for _ in range(ranks)]
        for rank, group in enumerate(groups):
            group.rank, group.size = rank, ranks
        for count in (0, 1, 5, 100):
            shares = [group.share(count) for group in groups]
            assert [each for share in shares for each in share] == list(range(count))
            assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_what_is_not_there_is_told_once(dmr: Run, tmp_path: Path) -> None:
    found = dmr("ckpt", "verify", tmp_path / "no-such-run")
    assert found.returncode == 1 and found.stderr.count("no-such-run") == 1, found.stderr


def test_ranks_that_take_themselves_for_the_only_one_are_refused(path: Path) -> None:
    pytest.importorskip("mpi4py")
    body = f"import sys; sys.argv = ['dmr', 'ckpt', 'verify', {str(path)!r}]; {BODY}"
    found = subprocess.run(
        [sys.executable, "-c", body],
        env={**os.environ, "SLURM_STEP_NUM_TASKS": "3"}, timeout=60, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert found.returncode == 1 and "SLURM_STEP_NUM_TASKS=3, but mpi4py's MPI finds one rank" in found.stderr
    assert "Traceback" not in found.stderr
