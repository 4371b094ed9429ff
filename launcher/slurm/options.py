"""The user's own sbatch options, carried to a successor of another size.

They come from three places, of which Slurm lets the command line beat the environment, and that the script. The job's
record says what came of all three where Slurm keeps it; the script's ``#SBATCH`` lines say the rest.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Long name, short form and whether a value is taken: options that a successor must not find in its script …
_REMOVED: tuple[tuple[str, str, bool], ...] = (
    ("nodes", "N", True), ("ntasks", "n", True), ("ntasks-per-node", "", True), ("cpus-per-task", "c", True),
    ("mincpus", "", True), ("use-min-nodes", "", False), ("nodelist", "w", True), ("nodefile", "F", True),
    ("mem", "", True), ("mem-per-cpu", "", True), ("mem-per-gpu", "", True),
    ("gres", "", True), ("gpus", "G", True), ("gpus-per-node", "", True), ("gpus-per-task", "", True),
    ("dependency", "d", True), ("begin", "b", True), ("hold", "H", False), ("wait", "W", False),
    ("test-only", "", False), ("quiet", "Q", False), ("time-min", "", True),
)  # fmt: skip
# … and those that its command line overrides, and that the next generation is to read again.
_READ: tuple[tuple[str, str, bool], ...] = (
    ("job-name", "J", True), ("comment", "", True), ("output", "o", True), ("error", "e", True), ("array", "a", True),
    ("open-mode", "", True), ("export", "", True), ("chdir", "D", True), ("parsable", "", False),
    ("partition", "p", True), ("time", "t", True),
)  # fmt: skip
_LONG = {long: takes for long, _, takes in (*_REMOVED, *_READ)}
_SHORT = {short: long for long, short, _ in (*_REMOVED, *_READ) if short}
_STAYS = frozenset(long for long, _, _ in _READ)
# Names that begin alike and stay: an abbreviation is of one option only if it is of none of these.
_OTHERS = (
    "account", "acctg-freq", "batch", "bb", "bbf", "cluster-constraint", "clusters", "constraint", "contiguous",
    "container", "container-id", "core-spec", "cores-per-socket", "cpu-freq", "cpus-per-gpu", "deadline", "delay-boot",
    "distribution", "exclude", "exclusive", "export-file", "extra", "extra-node-info", "get-user-env", "gid",
    "gpu-bind", "gpu-freq", "gpus-per-socket", "gres-flags", "help", "hint", "ignore-pbs", "input",
    "kill-on-invalid-dep", "licenses", "mail-type", "mail-user", "mcs-label", "mem-bind", "network", "nice", "no-kill",
    "no-requeue", "ntasks-per-core", "ntasks-per-gpu", "ntasks-per-socket", "oom-kill-step", "overcommit",
    "oversubscribe", "power", "prefer", "priority", "profile", "propagate", "qos", "reboot", "requeue", "reservation",
    "resv-ports", "segment", "signal", "sockets-per-node", "spread-job", "stepmgr", "switches", "thread-spec",
    "threads-per-core", "tmp", "tres-bind", "tres-per-task", "uid", "usage", "verbose", "version", "wait-all-nodes",
    "wckey", "wrap",
)  # fmt: skip
# Of these the ones without a value, or with one behind "=" alone.
_BARE = frozenset({
    "contiguous", "exclusive", "get-user-env", "help", "ignore-pbs", "nice", "no-kill", "no-requeue", "oom-kill-step",
    "overcommit", "oversubscribe", "propagate", "reboot", "requeue", "resv-ports", "spread-job", "stepmgr", "usage",
    "verbose", "version",
})  # fmt: skip
_SHORT_WITH_VALUE = frozenset("AaBbcCdDeFGiJLmMNnopqStwx")
_SHORT_BARE = frozenset("HhOQsVvW")

# sbatch's input variables whose options Slurm's record doesn't show. All others are in the record or of a size.
_FROM_ENVIRONMENT = (
    "ACCTG_FREQ", "CORE_SPEC", "DELAY_BOOT", "DISTRIBUTION", "GPU_BIND", "GPU_FREQ", "GRES_FLAGS", "HINT", "MEM_BIND",
    "NETWORK", "POWER", "PROFILE", "SIGNAL", "THREAD_SPEC", "THREADS_PER_CORE", "WAIT_ALL_NODES",
)  # fmt: skip
_FLAGS_FROM_ENVIRONMENT = ("OVERCOMMIT", "SPREAD_JOB")
# Of these sbatch leaves in the job's environment what was given, wherever it was given (22.05, by trial).
_LEFT_BY_SBATCH = frozenset({"ACCTG_FREQ", "DISTRIBUTION", "HINT", "OVERCOMMIT", "PROFILE", "THREADS_PER_CORE"})

_SUFFIX = re.compile(r"\.g\d{4,}\.\w+$")


@dataclass(frozen=True)
class Script:
    """A batch script: ``text`` without the options of size, and the options read."""

    text: str
    given: Mapping[str, str]


@dataclass(frozen=True)
class Shape:
    """What a successor is to have: ``nodes`` (minimum, maximum), ranks a node, CPUs a rank."""

    nodes: tuple[int, int]
    tasks_per_node: int
    cpus_per_task: int | None = None

    @property
    def cpus_per_node(self) -> int:
        return self.tasks_per_node * (self.cpus_per_task or 1)


def read_script(text: str) -> Script:
    """Take the options of size out of a script's ``#SBATCH`` lines; all else stays byte for byte.

    They can't be left to the command line's precedence: sbatch 22.05 refuses two forms of memory wherever they
    stand, and ``--ntasks`` in the script would fix the number of nodes.
    """
    given: dict[str, str] = {}
    lines = text.split("\n")
    for index, line in enumerate(lines):
        if line.strip() and not line.startswith("#"):
            break  # sbatch reads no options after the first command
        if not line.startswith("#SBATCH"):
            continue
        try:
            tokens = shlex.split(line[len("#SBATCH") :], comments=True)
        except ValueError:
            continue
        rest, found = _part(tokens)
        given |= found
        if len(rest) < len(tokens):
            lines[index] = f"#SBATCH {shlex.join(rest)}" if rest else "#"
    return Script("\n".join(lines), given)


def read_line(words: Sequence[str]) -> tuple[dict[str, str], int] | None:
    """Return the options that a command line begins with, and where they end: at ``--wrap``, or at the script.

    None where one is not known, since the word behind it may be its value, or the script. Options without a long name
    in this module are left out.
    """
    found: dict[str, str] = {}
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] != "-":
        word = words[position]
        if word == "--":
            return found, position + 1
        name: str | None
        if word.startswith("--"):
            name, equals, text = word[2:].partition("=")
            name, value = _full(name), text if equals else None
            if name == "wrap":
                break
            if name not in _LONG and name not in _OTHERS:
                return None
            takes = _LONG.get(name, name not in _BARE)
        else:
            letters = word[1:].lstrip("".join(_SHORT_BARE))
            if letters[:1] and letters[0] not in _SHORT_WITH_VALUE and letters[0] != "k":
                return None
            takes = letters[:1] in _SHORT_WITH_VALUE
            name, value = _SHORT.get(letters[:1]), letters[1:] or None
        position += 1
        if takes and value is None:
            value = words[position] if position < len(words) else ""
            position += 1
        if name is not None:
            found[name] = value or ""
    return found, min(position, len(words))


def size_options(shape: Shape) -> list[str]:
    """Return the options that ask for a size.

    A range of nodes is asked for without tasks: with ``--ntasks-per-node`` Slurm (22.05, by trial and source) starts
    such a job on hardly more than the minimum, however many nodes are free.
    """
    least, most = shape.nodes
    cpus = [f"--cpus-per-task={shape.cpus_per_task}"] if shape.cpus_per_task else []
    if least == most:
        tasks = [f"--ntasks={least * shape.tasks_per_node}", f"--ntasks-per-node={shape.tasks_per_node}"]
        return [f"--nodes={least}", *tasks, *cpus]
    return [f"--nodes={least}-{most}", f"--mincpus={shape.cpus_per_node}", *cpus]


def pending_size(shape: Shape) -> list[str]:
    """Return what ``scontrol update`` needs to know to change a pending job's size.

    Without CPUs and tasks the job would go on to ask for those of its old size (BadConstraints), without a maximum
    for its old one. A job whose range was changed starts on the minimum (22.05 and 24.11, by trial).
    """
    least, most = shape.nodes
    tasks = least * shape.tasks_per_node
    return [f"NumNodes={least}-{most}", f"NumCPUs={least * shape.cpus_per_node}", f"NumTasks={tasks}"]


def carried_options(
    record: Mapping[str, str], script: Script, environ: Mapping[str, str], shape: Shape, held: int
) -> list[str]:
    """Return the options that a successor takes over from a job.

    Parameters
    ----------
    record
        The job's `scontrol show job`, see `.parse.record`.
    environ
        The job's environment; it tells the form of memory that was asked for, and options not in the record.
    held
        Nodes that the job started on, by which a number of GPUs for the whole job is shared out.
    """
    options = [
        *_simple(record, script),
        *_memory(record, environ),
        *_gpus(record, shape, held),
        *_exclusive(record),
    ]
    for name in _FROM_ENVIRONMENT:
        value = _given(name, environ)
        if value:
            options.append(f"--{name.lower().replace('_', '-')}={value}")
    options += [f"--{n.lower().replace('_', '-')}" for n in _FLAGS_FROM_ENVIRONMENT if _given(n, environ)]
    return options


def _given(name: str, environ: Mapping[str, str]) -> str:
    """Return what was given for an option that the record doesn't show, empty where that is not to be found out."""
    left = environ.get(f"SLURM_{name}", "") if name in _LEFT_BY_SBATCH else ""
    if name == "THREADS_PER_CORE" and environ.get("SLURM_HINT"):
        left = ""  # what the hint comes to
    if name == "DISTRIBUTION" and left.startswith("plane"):
        size = environ.get("SLURM_DIST_PLANESIZE", "")
        left = f"plane={size}" if size else ""
    return left or environ.get(f"SBATCH_{name}", "")


def partitions(record: Mapping[str, str], script: str) -> tuple[str, ...]:
    """Return the partitions that a successor may run in: all that the job named, if it named the one it runs in."""
    named = tuple(part for part in read_script(script).given.get("partition", "").split(",") if part)
    own = record.get("Partition")
    return named if own in named else (own,) if own else ()


def output_options(record: Mapping[str, str], script: Script, job: str, generation: int) -> list[str]:
    """Return where a successor writes: a file whose name holds no job id gets the generation; all are appended to."""
    options = ["--open-mode=append"]
    default = "slurm-%A_%a.out" if "ArrayTaskId" in record else "slurm-%j.out"
    for option, key in (("output", "StdOut"), ("error", "StdErr")):
        pattern = _pattern(record, script.given.get(option), key, job, default)
        if pattern is None or (option == "error" and record.get("StdErr") == record.get("StdOut")):
            continue
        options.append(f"--{option}={with_generation(pattern, generation)}")
    return options


def with_generation(pattern: str, generation: int) -> str:
    """Put the generation into a file name: ``run.out`` to ``run.g0004.out``; names with a job id are kept."""
    if pattern == "/dev/null" or re.search(r"%\d*[jJA]", pattern):
        return pattern
    folder, slash, name = pattern.rpartition("/")
    name = re.sub(r"\.g\d{4,}(?=\.|$)", "", name)
    stem, dot, suffix = name.rpartition(".")
    mark = f".g{generation:04d}"
    return folder + slash + (f"{stem}{mark}.{suffix}" if stem and dot else f"{name}{mark}")


def job_name(record: Mapping[str, str], generation: int, token: str) -> str:
    """Return the user's own job name with generation and token behind it, in place of those of the job before."""
    return f"{_SUFFIX.sub('', record.get('JobName', 'dmr'))}.g{generation:04d}.{token}"


def comment(record: Mapping[str, str], name: str) -> str:
    """Return a comment that begins with the generation's name, the user's own behind it."""
    own = re.sub(r"^dmr:\S+\s*", "", record.get("Comment", ""))
    return f"{name} {own}".strip()


def export_option(script: Script, environ: Mapping[str, str], added: Sequence[str]) -> str:
    """Return ``--export`` such that the variables added reach the job beside what the user let through."""
    chosen = environ.get("SLURM_EXPORT_ENV") or environ.get("SBATCH_EXPORT") or script.given.get("export") or "ALL"
    parts = [part for part in chosen.split(",") if part and not part.startswith("DMR_")]
    if parts and parts[0].upper() == "ALL":
        # The values of the user's own additions are in the environment already, whatever commas they held.
        return "--export=ALL"
    if parts and parts[0].upper() in ("NONE", "NIL"):
        parts = []
    return "--export=" + ",".join([*parts, *sorted(added)])


def _part(tokens: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Divide one line's tokens: those that stay in the script, and the options read."""
    rest: list[str] = []
    found: dict[str, str] = {}
    position = 0
    while position < len(tokens):
        first, token = position, tokens[position]
        position += 1
        name, value, takes = _option(token)
        if name is None:
            if len(token) == 2 and token[0] == "-" and token[1] in _SHORT_WITH_VALUE:
                position += 1
            rest += tokens[first:position]
            continue
        if takes and value is None and position < len(tokens):
            value = tokens[position]
            position += 1
        found[name] = value or ""
        # All the memory of a node is nothing that the job's record tells from no wish at all.
        if name in _STAYS or (name == "mem" and found[name].rstrip("KMGTB") == "0"):
            rest += tokens[first:position]
    return rest, found


def _option(token: str) -> tuple[str | None, str | None, bool]:
    """Return long name, value (None when it is the next token's) and whether one is taken; no name if not read."""
    if token.startswith("--"):
        name, equals, value = token[2:].partition("=")
        name = _full(name)
        return (name, value if equals else None, _LONG[name]) if name in _LONG else (None, None, False)
    if len(token) >= 2 and token[0] == "-" and token[1] in _SHORT:
        long = _SHORT[token[1]]
        if not _LONG[long]:
            return (long, None, False) if len(token) == 2 else (None, None, False)
        return long, token[2:] or None, True
    return None, None, False


def _full(name: str) -> str:
    """Complete an abbreviated option as getopt does."""
    every = (*_LONG, *_OTHERS)
    if name in every:
        return name
    alike = [each for each in every if each.startswith(name)]
    return alike[0] if len(alike) == 1 else name


def _simple(record: Mapping[str, str], script: Script) -> list[str]:
    options = []
    for key, option in (
        ("Account", "account"),
        ("QOS", "qos"),
        ("Features", "constraint"),
        ("Reservation", "reservation"),
        ("Licenses", "licenses"),
        ("ExcNodeList", "exclude"),
        ("WCKey", "wckey"),
        ("MailUser", "mail-user"),
        ("MailType", "mail-type"),
    ):
        value = record.get(key, "").lstrip("*")
        if value:
            options.append(f"--{option}={value}")
    # A job that named several partitions shows the one it runs in; its successor may go to any of them again.
    if "Partition" in record and record["Partition"] not in script.given.get("partition", "").split(","):
        options.append(f"--partition={record['Partition']}")
    if record.get("Nice", "0").isdecimal() and record.get("Nice", "0") != "0":
        options.append(f"--nice={record['Nice']}")
    if "Requeue" in record:
        options.append("--requeue" if record["Requeue"] == "1" else "--no-requeue")
    return options


def _memory(record: Mapping[str, str], environ: Mapping[str, str]) -> list[str]:
    """Return the one form of memory that the job has."""
    for variable, option in (("CPU", "mem-per-cpu"), ("GPU", "mem-per-gpu"), ("NODE", "mem")):
        value = environ.get(f"SLURM_MEM_PER_{variable}", "")
        if value.isdecimal() and value != "0":
            return [f"--{option}={value}M"]
    for key, option in (("MinMemoryCPU", "mem-per-cpu"), ("MinMemoryNode", "mem")):
        value = record.get(key, "")
        if value.rstrip("KMGTB") not in ("", "0"):
            return [f"--{option}={value}"]
    return []


def _gpus(record: Mapping[str, str], shape: Shape, held: int) -> list[str]:
    """Return generic resources a node. A number for the whole job, or a task, becomes one a node."""
    per_node = [_resource(item) for item in record.get("TresPerNode", "").split(",") if _is_gres(item)]
    options = [f"--gres={','.join(per_node)}"] if per_node else []
    for key, share in (("TresPerJob", 1 / max(1, held)), ("TresPerTask", float(shape.tasks_per_node))):
        for item in record.get(key, "").split(","):
            found = re.fullmatch(r"gpu(?::([A-Za-z]\w*))?(?:[:=](\d+))?", _resource(item)) if _is_gres(item) else None
            if found is None or found.group(2) == "0":
                continue
            number = math.ceil(int(found.group(2) or 1) * share)
            kind = f"{found.group(1)}:" if found.group(1) else ""
            if not per_node:
                options.append(f"--gpus-per-node={kind}{number}")
    cpus = re.search(r"gres[:/]gpu[:=](\d+)", record.get("CpusPerTres", ""))
    return [*options, f"--cpus-per-gpu={cpus.group(1)}"] if cpus else options


def _is_gres(item: str) -> bool:
    return re.match(r"gres[:/]", item.strip()) is not None


def _resource(item: str) -> str:
    return re.sub(r"^gres[:/]", "", item.strip()).replace("=", ":")


def _exclusive(record: Mapping[str, str]) -> list[str]:
    form = {"NO": "--exclusive", "EXCLUSIVE": "--exclusive", "USER": "--exclusive=user", "MCS": "--exclusive=mcs"}
    form |= {"YES": "--oversubscribe", "TOPO": "--exclusive=topo"}
    value = form.get(record.get("OverSubscribe", ""))
    return [value] if value else []


def _pattern(record: Mapping[str, str], given: str | None, key: str, job: str, default: str) -> str | None:
    """Return the pattern of an output file, as the script gives it or as the record's path shows it."""
    path = record.get(key)
    if path is None or path == "/dev/null":
        return path or given
    folder = record.get("WorkDir", "").rstrip("/") + "/"
    for pattern in (given, default if key == "StdOut" else None):
        if pattern and _matches(path.removeprefix(folder), pattern.removeprefix(folder)):
            return pattern
    if "%" in path:
        return path
    # It was given on the command line, and the record shows it filled in: the job's own id becomes a %j again.
    name = path.removeprefix(folder)
    return re.sub(rf"(?<!\d){re.escape(job)}(?!\d)(?=[^/]*$)", "%j", name) if len(job) > 1 else name


def _matches(path: str, pattern: str) -> bool:
    # Some versions show the pattern itself, others what came of it.
    parts = re.split(r"%\d*[A-Za-z%]", pattern)
    return path == pattern or re.fullmatch(".*".join(map(re.escape, parts)), path) is not None
