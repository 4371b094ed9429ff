"""Read what Slurm's commands print. Pure: text in, plain data out.

The queries ask for explicit columns between separators that no name or comment holds, and for times in unix
seconds, so that one parser reads 22.05 to 26.05. (``--json`` changed its shape between these.)
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

FIELD, RECORD = "\x1f", "\x1e"

QUEUE_COLUMNS = (
    "jobarrayid", "jobid", "state", "numnodes", "maxnodes", "tres-alloc", "partition", "prioritylong", "submittime",
    "starttime", "endtime", "timelimit", "reason", "nodelist", "batchhost", "username", "name", "comment",
)  # fmt: skip
NODE_COLUMNS = ("%N", "%P", "%T", "%f", "%s", "%c", "%l")

# A width of 0 ("name:SEPARATOR") prints a column whole; without a colon squeue cuts it at 20 characters.
QUEUE_FORMAT = ",".join(f"{name}:{FIELD}" for name in QUEUE_COLUMNS[:-1]) + f",{QUEUE_COLUMNS[-1]}:{RECORD}"
NODE_FORMAT = FIELD.join(NODE_COLUMNS) + RECORD
STEP_FORMAT = FIELD.join(("%i", "%j")) + RECORD

_NOTHING = frozenset(("", "(null)", "N/A", "n/a", "None", "NONE", "Unknown", "UNKNOWN", "*", "(none)"))


@dataclass(frozen=True)
class JobRow:
    """One job of the queue. ``job`` is ``456_7`` for task 7 of an array; ``tasks`` are an array's waiting tasks."""

    job: str
    raw: str
    state: str
    nodes: int
    nodes_max: int | None
    partitions: tuple[str, ...]
    priority: float
    submitted: float | None
    start: float | None
    end: float | None
    time_limit: float | None
    reason: str
    held: tuple[str, ...]
    batch_host: str
    user: str
    name: str
    comment: str
    tasks: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """The jobs that the row stands for: one, or the waiting tasks of an array."""
        return tuple(f"{self.job}_{task}" for task in self.tasks) or (self.job,)


@dataclass(frozen=True)
class NodeRow:
    """One node in one partition. ``flag`` is the mark that sinfo puts behind a state (``*`` not responding …)."""

    name: str
    partition: str
    state: str
    flag: str
    features: frozenset[str]
    cpus: int
    max_nodes: int | None
    time_limit: float | None


def jobs(text: str) -> list[JobRow]:
    """Read ``squeue -h -O QUEUE_FORMAT``. A record of another shape is passed over."""
    return [_job(fields) for fields in _records(text, len(QUEUE_COLUMNS))]


def nodes(text: str) -> list[NodeRow]:
    """Read ``sinfo -h -N -o NODE_FORMAT``."""
    return [_node(fields) for fields in _records(text, len(NODE_COLUMNS))]


def steps(text: str) -> list[tuple[str, str]]:
    """Read ``squeue -h -s -o STEP_FORMAT``: pairs of step id and name."""
    return [(fields[0], fields[1]) for fields in _records(text, 2)]


def record(text: str) -> dict[str, str]:
    """Read one line of ``scontrol show job -o``; values may hold spaces."""
    name = re.search(r"JobName=(.*?) UserId=\S+\(\d+\) ", text, re.DOTALL)
    found = {} if name is None else {"JobName": name.group(1)}
    rest = text if name is None else text[: name.start()] + text[name.end(1) :]
    marks: list[re.Match[str]] = []
    for mark in _RECORD_KEY.finditer(rest):
        # A key comes once: a second one is part of somebody's comment.
        if all(mark.group(1) != each.group(1) for each in marks):
            marks.append(mark)
    ends = [*(mark.start() for mark in marks[1:]), len(rest)]
    for mark, end in zip(marks, ends, strict=False):
        value = rest[mark.end() : end].strip()
        if mark.group(1) not in _FREE_TEXT:  # a key that this list lacks may follow
            value = value.partition(" ")[0]
        found.setdefault(mark.group(1), value)
    return {key: value for key, value in found.items() if value not in _NOTHING}


def expand_hosts(text: str) -> tuple[str, ...]:
    """Expand Slurm's short form: ``n[1-3,07],gpu2`` to each name, in its order."""
    found: list[str] = []
    for item in _split_outside_brackets(text.strip()):
        found += _expand_one(item)
    return tuple(found)


def short_hosts(names: Sequence[str]) -> str:
    """Return the short form of names whose numbers run on: ``n1 n2 n3`` to ``n[1-3]``."""
    groups: list[tuple[str, int, int, int]] = []
    for name in names:
        found = re.fullmatch(r"(.*?)(\d+)", name)
        if found is None or len(found.group(2)) > 18:
            groups.append((name, -1, -1, 0))
            continue
        prefix, digits = found.groups()
        width = len(digits) if digits.startswith("0") else 0
        last = groups[-1] if groups else None
        # Of n3 and n04 the width differs: they are no run, as n9 and n10 are, and n09 and n10.
        if last and last[0] == prefix and last[2] + 1 == int(digits) and last[3] == (len(digits) if last[3] else width):
            groups[-1] = (prefix, last[1], int(digits), last[3])
        else:
            groups.append((prefix, int(digits), int(digits), width))
    return ",".join(
        prefix if first < 0 else f"{prefix}{first:0{width}d}" if first == last
        else f"{prefix}[{first:0{width}d}-{last:0{width}d}]"
        for prefix, first, last, width in groups
    )  # fmt: skip


def duration(text: str) -> float | None:
    """Return seconds of ``[days-]hours:minutes:seconds``, ``minutes:seconds`` or ``minutes``; None for no limit."""
    found = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text.strip())
    if found is None:
        return None
    days, *parts = (None if part is None else int(part) for part in found.groups())
    given = [part for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = [*given, 0, 0][:3]
        return days * 86400.0 + hours * 3600 + minutes * 60 + seconds
    if len(given) == 1:
        return given[0] * 60.0
    hours, minutes, seconds = [0, *given][-3:]
    return hours * 3600.0 + minutes * 60 + seconds


def moment(text: str) -> float | None:
    """Return the unix time of a time column, None where there is none. Reads local ISO times also."""
    text = text.strip()
    if re.fullmatch(r"\d+", text):
        return float(text) or None
    try:
        return time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return None


def counts(text: str) -> tuple[int, ...]:
    """Expand SLURM_TASKS_PER_NODE or SLURM_JOB_CPUS_PER_NODE: ``2(x3),1`` to one number a node."""
    found: list[int] = []
    for item in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:\(x(\d+)\))?\s*", item)
        if match is None:
            return ()
        found += [int(match.group(1))] * int(match.group(2) or 1)
    return tuple(found)


def array_tasks(text: str, most: int = 100) -> tuple[str, ...]:
    """Return the indices of waiting tasks in an array's job id, ``456_[3-9:2,12%4]``, up to ``most`` of them.

    Of an array that runs a few at a time only so many are counted, since no more start at once.
    """
    found = re.search(r"_\[([^\]%]*)(?:%(\d+))?\]?", text)
    if found is None:
        return ()
    most = min(most, int(found.group(2))) if found.group(2) else most
    indices: list[str] = []
    for item in found.group(1).split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", item)
        if match is not None:
            first, last, by = int(match.group(1)), int(match.group(2) or match.group(1)), int(match.group(3) or 1)
            indices += [str(index) for index in range(first, min(last, first + most * by) + 1, max(1, by))]
    return tuple(indices[:most])


def version(text: str) -> tuple[int, int]:
    """Return (year, month) of ``slurm-wlm 22.05.8`` or ``slurm 24.11.5``, (0, 0) when it can't be read."""
    found = re.search(r"\b(\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def submitted_job(text: str) -> str | None:
    """Return the job id that ``sbatch --parsable`` printed (``id`` or ``id;cluster``), below what a site prints."""
    for line in reversed(text.splitlines()):
        found = re.fullmatch(r"\s*(\d+)(?:;\S+)?\s*", line)
        if found is not None:
            return found.group(1)
    return None


def test_only_start(text: str) -> float | None:
    """Return the start time that ``sbatch --test-only`` foretells; from 25.05 it reads ``to start at T a using``."""
    found = re.search(r"to start at (\S+)", text)
    return moment(found.group(1)) if found else None


_RECORD_KEY = re.compile(
    r"(?:^|(?<=\s))(JobId|ArrayJobId|ArrayTaskId|HetJobId|HetJobOffset|UserId|GroupId|MCS_label|Priority|Nice|Account|QOS|"
    r"WCKey|JobState|Reason|Dependency|Requeue|Restarts|BatchFlag|Reboot|ExitCode|DerivedExitCode|RunTime|TimeLimit|TimeMin|"
    r"SubmitTime|EligibleTime|AccrueTime|StartTime|EndTime|Deadline|SuspendTime|SecsPreSuspend|LastSchedEval|Scheduler|"
    r"Partition|AllocNode:Sid|ReqNodeList|ExcNodeList|NodeList|SchedNodeList|BatchHost|BatchFeatures|NumNodes|NumCPUs|"
    r"NumTasks|CPUs/Task|ReqB:S:C:T|TRES|ReqTRES|AllocTRES|Socks/Node|NtasksPerN:B:S:C|CoreSpec|ThreadSpec|MinCPUsNode|"
    r"MinMemoryNode|MinMemoryCPU|MinTmpDiskNode|Features|DelayBoot|Prefer|OverSubscribe|Contiguous|Licenses|LicensesAlloc|"
    r"Network|Command|WorkDir|AdminComment|SystemComment|Comment|StdErr|StdIn|StdOut|Power|CpusPerTres|MemPerTres|TresBind|"
    r"TresFreq|TresPerJob|TresPerNode|TresPerSocket|TresPerTask|MailUser|MailType|Reservation|FailedNode|Switches|SubmitLine|"
    r"NtasksPerTRES|Container|ContainerID|BurstBuffer|Cluster|GresEnforceBind|KillOInInvalidDependent|OOMKillStep|"
    r"SegmentSize|ResizeTime|PreemptTime|PreemptEligibleTime|TimeLimitRaised|Extra|SLUID|Nodes)="
)


_FREE_TEXT = frozenset(
    ("Command", "WorkDir", "StdErr", "StdIn", "StdOut", "SubmitLine", "Comment", "AdminComment", "SystemComment")
)


def _records(text: str, size: int) -> Iterator[list[str]]:
    for line in text.split(RECORD):
        fields = line.lstrip("\n").split(FIELD)
        if len(fields) == size:
            yield fields


def _job(fields: Sequence[str]) -> JobRow:
    row = dict(zip(QUEUE_COLUMNS, fields, strict=True))
    value = {key: "" if text.strip() in _NOTHING else text.strip() for key, text in row.items()}
    shown = int(value["numnodes"]) if value["numnodes"].isdecimal() else 0
    most = int(value["maxnodes"]) if value["maxnodes"].isdecimal() else 0
    # While a job with a range of sizes pends, numnodes shows more than the least, and the resources show it right.
    asked = re.search(r"(?:^|,)node=(\d+)", value["tres-alloc"])
    return JobRow(
        job=re.sub(r"_\[.*", "", value["jobarrayid"]) or value["jobid"],
        raw=value["jobid"],
        state=value["state"].upper(),
        nodes=int(asked.group(1)) if asked else shown,
        nodes_max=most or None,
        partitions=tuple(part for part in value["partition"].split(",") if part),
        priority=float(value["prioritylong"]) if re.fullmatch(r"\d+", value["prioritylong"]) else 0.0,
        submitted=moment(value["submittime"]),
        start=moment(value["starttime"]),
        # Of a job without a limit Slurm shows an end in a year.
        end=None if value["timelimit"] == "UNLIMITED" else moment(value["endtime"]),
        time_limit=duration(value["timelimit"]),
        reason=value["reason"],
        held=expand_hosts(value["nodelist"]) if value["nodelist"] else (),
        batch_host=value["batchhost"],
        user=value["username"],
        name=value["name"],
        comment=value["comment"],
        tasks=array_tasks(value["jobarrayid"]),
    )


def _node(fields: Sequence[str]) -> NodeRow:
    name, partition, state, features, size, cpus, limit = (text.strip() for text in fields)
    word = re.match(r"[a-z_]+", state.lower())
    most = size.rpartition("-")[2]
    return NodeRow(
        name=name,
        partition=partition.rstrip("*"),
        state=word.group(0) if word else "",
        flag=state[word.end() :] if word else state,
        features=frozenset(part for part in features.split(",") if part and part not in _NOTHING),
        cpus=int(cpus) if cpus.isdecimal() else 0,
        max_nodes=int(most) if most.isdecimal() else None,
        time_limit=duration(limit),
    )


def _split_outside_brackets(text: str) -> list[str]:
    return [item for item in re.findall(r"(?:[^,\[\]]|\[[^\]]*\])+", text) if item]


def _expand_one(item: str) -> list[str]:
    found = re.search(r"\[([^\]]*)\]", item)
    if found is None:
        return [item]
    before, after = item[: found.start()], item[found.end() :]
    names: list[str] = []
    for part in found.group(1).split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()):
            return [item]
        width = len(first) if first.startswith("0") else 0
        names += [f"{before}{number:0{width}d}" for number in range(int(first), int(last or first) + 1)]
    return [name + rest for name in names for rest in _expand_one(after)] if after else names
