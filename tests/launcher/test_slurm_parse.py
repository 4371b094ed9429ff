"""Parsers of Slurm's output, on what real releases printed, and on texts drawn at random."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.launcher.engines.mpi import parse_plugins
from dmr.launcher.slurm import parse
from dmr.launcher.slurm.commands import CommandFailed
from dmr.launcher.slurm.site import Site, read_site

RELEASES = sorted(Path(__file__).with_name("slurm_outputs").glob("[0-9]*"))


@pytest.fixture(params=RELEASES, ids=lambda path: path.name)
def release(request: pytest.FixtureRequest) -> Path:
    found: Path = request.param
    return found


def test_queue(release: Path) -> None:
    rows = parse.jobs((release / "queue.txt").read_text())
    first, second, ranged, array, dependent, ended = sorted(rows, key=lambda row: int(row.raw))
    assert (first.state, first.nodes, first.held, first.batch_host) == ("RUNNING", 2, ("n1", "n2"), "n1")
    assert (first.name, first.comment) == ("my UserId= job", "dmr:run1:1:abc12 NodeList=n9 | odd\nlines")
    assert first.time_limit == 600 and first.end is not None and first.start is not None
    assert first.end - first.start == 600
    assert first.submitted is not None and first.submitted <= first.start
    assert (second.partitions, second.held) == (("side",), ("n3",))
    assert (ranged.state, ranged.nodes, ranged.nodes_max) == ("PENDING", 3, 5), "the least, not what numnodes shows"
    assert (array.job, array.nodes) == (array.raw, 4)
    assert array.tasks == ("3", "5"), "no more than the array runs at a time"
    assert dependent.partitions == ("main", "side") and dependent.reason == "Dependency"
    assert ended.state == "CANCELLED" and ended.end is not None
    assert first.priority > second.priority > ranged.priority > array.priority > dependent.priority


def test_nodes(release: Path) -> None:
    rows = parse.nodes((release / "nodes.txt").read_text())
    assert [(row.name, row.partition) for row in rows] == [
        ("n1", "main"), ("n1", "side"), ("n2", "main"), ("n2", "side"), ("n3", "main"), ("n3", "side"),
        ("n4", "main"), ("n5", "main"),
    ]  # fmt: skip
    assert {row.name: row.state for row in rows} == {
        "n1": "allocated", "n2": "allocated", "n3": "allocated", "n4": "planned", "n5": "drained",
    }  # fmt: skip
    assert {(row.partition, row.max_nodes, row.time_limit) for row in rows} == {("main", None, None), ("side", 2, 1800)}
    assert {row.cpus for row in rows} == {2} and {row.flag for row in rows} == {""}


def test_steps(release: Path) -> None:
    assert ("1.0", "dmr-1-1") in parse.steps((release / "steps.txt").read_text())


def test_record(release: Path) -> None:
    record = parse.record((release / "record.txt").read_text())
    assert record["JobName"] == "my UserId= job"
    assert record["Comment"] == "dmr:run1:1:abc12 NodeList=n9 | odd\nlines"
    assert record["NodeList"] == "n[1-2]", "not what the comment says"
    assert record["Command"].split()[0] == "/home/user/job.sh", "22.05 shows the arguments behind it"
    assert record["WorkDir"] == "/tmp"
    assert record["TimeLimit"] == "00:10:00"
    assert record["MinMemoryNode"] == "100M"
    assert record["BatchFlag"] == "1" and record["Requeue"] == "1"
    assert "Features" not in record and "Account" not in record, "nothing was asked for"


def test_a_key_that_is_not_known_is_no_part_of_the_value_before(release: Path) -> None:
    text = (release / "record.txt").read_text()
    reason = re.search(r" Reason=\S+", text)
    assert reason is not None
    record = parse.record(text.replace(reason[0], " Reason=NodeDown Unheard=n2", 1))
    assert record["Reason"] == "NodeDown"
    assert record["Comment"] == "dmr:run1:1:abc12 NodeList=n9 | odd\nlines"


def test_small_answers(release: Path) -> None:
    year, month = release.name.split(".")
    assert parse.version((release / "version.txt").read_text()) == (int(year), int(month))
    start = parse.test_only_start((release / "test-only.txt").read_text())
    assert start is not None and start > 1.7e9
    assert {"pmix", "pmi2"} <= set(parse_plugins((release / "plugins.txt").read_text()))
    assert CommandFailed(["squeue"], 1, (release / "unknown-job.txt").read_text()).unknown_job
    assert not CommandFailed(["sbatch"], 1, (release / "refused.txt").read_text()).unknown_job


def test_test_only_of_later_releases() -> None:
    text = "sbatch: Job 7 to start at 2025-09-01T10:00:00 a using 8 processors on nodes n[1-4] in partition main"
    assert parse.test_only_start(text) == parse.moment("2025-09-01T10:00:00")
    assert parse.test_only_start("allocation failure: Requested node configuration is not available") is None


def test_a_broken_record_is_passed_over() -> None:
    text = (RELEASES[0] / "queue.txt").read_text()
    assert len(parse.jobs("slurm: a site's greeting\n" + parse.RECORD + text)) == len(parse.jobs(text))
    assert parse.jobs("") == [] and parse.nodes("garbage") == []


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10:00", 600), ("1:30:00", 5400), ("2-03:04:05", 183845), ("1-00", 86400), ("90", 5400), ("0:30", 30),
     ("UNLIMITED", None), ("infinite", None), ("N/A", None), ("", None)],
)  # fmt: skip
def test_duration(text: str, seconds: float | None) -> None:
    assert parse.duration(text) == seconds


def test_hosts() -> None:
    assert parse.expand_hosts("n[1-3,07],gpu2") == ("n1", "n2", "n3", "n07", "gpu2")
    assert parse.expand_hosts("r[1-2]n[08-10]") == ("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10")
    assert parse.expand_hosts("login-a,x-1") == ("login-a", "x-1")
    assert parse.short_hosts(["n1", "n2", "n3", "n5", "m"]) == "n[1-3],n5,m"
    assert parse.short_hosts(["n08", "n09", "n10"]) == "n[08-10]"
    assert parse.short_hosts(["n3", "n04"]) == "n3,n04"
    assert parse.short_hosts(["n03", "n4"]) == "n03,n4"


hosts = st.builds(
    lambda prefix, number, width: f"{prefix}{number:0{width}d}",
    st.sampled_from(["n", "gpu-", "r1c", "a0b"]), st.integers(0, 120), st.integers(0, 4),
)  # fmt: skip


@given(st.lists(hosts, max_size=40))
def test_hosts_survive_the_short_form(names: list[str]) -> None:
    assert parse.expand_hosts(parse.short_hosts(names)) == tuple(names)


@given(st.lists(st.integers(1, 256), min_size=1, max_size=30))
def test_counts(numbers: list[int]) -> None:
    groups: list[list[int]] = []
    for number in numbers:
        if groups and groups[-1][0] == number:
            groups[-1][1] += 1
        else:
            groups.append([number, 1])
    text = ",".join(f"{number}(x{times})" if times > 1 else str(number) for number, times in groups)
    assert parse.counts(text) == tuple(numbers)


def test_counts_of_nonsense() -> None:
    assert parse.counts("") == () and parse.counts("2(x") == ()


@pytest.mark.parametrize(
    ("text", "tasks"),
    [("456_7", ()), ("456", ()), ("456_[3-9:2]", ("3", "5", "7", "9")), ("456_[1,4-5]", ("1", "4", "5")),
     ("456_[0-99999]", tuple(map(str, range(100)))), ("456_[1-50%3]", ("1", "2", "3")), ("456_[1,2,...]", ("1", "2"))],
)  # fmt: skip
def test_array_tasks(text: str, tasks: tuple[str, ...]) -> None:
    assert parse.array_tasks(text) == tasks


def test_submitted_job() -> None:
    assert parse.submitted_job("456\n") == "456"
    assert parse.submitted_job("Welcome to the cluster, 2 of 3 filters passed\n456;alpha\n") == "456"
    assert parse.submitted_job("sbatch: lua: all well\n") is None


@given(st.text(max_size=200))
def test_no_text_breaks_a_parser(text: str) -> None:
    parse.jobs(text), parse.nodes(text), parse.record(text), parse.expand_hosts(text), parse.counts(text)
    parse.duration(text), parse.moment(text), parse.array_tasks(text), parse.submitted_job(text), parse.steps(text)
    assert all(re.fullmatch(r"\w+", name) for name in parse_plugins(text))


@pytest.mark.parametrize(
    ("release", "storage", "parameters", "first", "again"),
    [
        ("22.05.8", "accounting_storage/none", "bf_interval=1", True, False),
        ("24.05.1", "(null)", "(null)", True, False),
        ("22.05.8", "accounting_storage/slurmdbd", "(null)", True, True),
        ("24.11.5", "accounting_storage/none", "(null)", True, True),
        ("24.11.5", "(null)", "bf_window=10,disable_job_shrink", False, False),
    ],
)
def test_what_a_site_says_of_shrinking(release: str, storage: str, parameters: str, first: bool, again: bool) -> None:
    config = (
        f"Configuration data as of now\nAccountingStorageType   = {storage}\nSchedulerParameters     = {parameters}\n"
    )
    site = read_site(config + f"SLURM_CONF              = /etc/slurm/slurm.conf\nSLURM_VERSION           = {release}\n")
    assert (site.no_shrink(False) is None, site.no_shrink(True) is None) == (first, again)
    assert read_site("") == Site(), "what is not known is tried"
