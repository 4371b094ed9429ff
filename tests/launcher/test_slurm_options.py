"""The user's own sbatch options, carried to a successor."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmr.launcher.slurm import options
from dmr.launcher.slurm.environment import step_environment, without_scheduler
from dmr.launcher.slurm.options import Script, Shape, read_script
from dmr.launcher.slurm.submit import Prepared, output_of

NOTHING = Script("", {})


def test_options_of_size_leave_the_script() -> None:
    script = read_script(
        "#!/bin/bash -l\n"
        "# a comment, #SBATCH --nodes=9\n"
        "\n"
        "#SBATCH --nodes=4 --ntasks-per-node 32 --time=02:00:00   # sizes\n"
        "#SBATCH -N4 -n 128 -c2\n"
        "#SBATCH -A 'my account' --mem-per-cpu=2G -p main,side\n"
        "##SBATCH --nodes=7\n"
        "#SBATCH --signal=B:USR1@60\n"
        '#SBATCH -o run.out -J "my job" --export=NONE\n'
        "cd there\n"
        "#SBATCH --nodes=5\n"
    )
    assert script.text == (
        "#!/bin/bash -l\n"
        "# a comment, #SBATCH --nodes=9\n"
        "\n"
        "#SBATCH --time=02:00:00\n"
        "#\n"
        "#SBATCH -A 'my account' -p main,side\n"
        "##SBATCH --nodes=7\n"
        "#SBATCH --signal=B:USR1@60\n"
        '#SBATCH -o run.out -J "my job" --export=NONE\n'
        "cd there\n"
        "#SBATCH --nodes=5\n"
    )
    assert script.given == {
        "nodes": "4", "ntasks-per-node": "32", "ntasks": "128", "cpus-per-task": "2", "mem-per-cpu": "2G",
        "output": "run.out", "job-name": "my job", "export": "NONE", "partition": "main,side",
        "time": "02:00:00",
    }  # fmt: skip


@pytest.mark.parametrize(
    "line",
    ["--hold", "-H", "--wait", "-W", "--dependency=afterok:3", "-d singleton", "--begin=now+1hour", "--test-only",
     "--nodelist=n1", "-w n[1-2]", "--gres=gpu:2", "--gpus=8", "-G 8", "--mem=4G", "--use-min-nodes",
     "--ntasks-per-n=3", "--time-min=30", "--time-min 1:00:00"],
)  # fmt: skip
def test_what_a_successor_must_not_inherit(line: str) -> None:
    assert read_script(f"#!/bin/sh\n#SBATCH {line}\n").text == "#!/bin/sh\n#\n"


@pytest.mark.parametrize(
    "line",
    ["--mem=0", "--ntasks-per-core=1", "--ntasks-per-socket=2", "--exclusive", "--exclude=n1", "-x n1",
     "--gres-flags=x", "--mem-bind=local", "--wait-all-nodes=1", "--mail-type=END",
     "--begi", "-B 2:2:1", "unbalanced 'quote --nodes=2",
     "--array=1-3", "--error=x"],
)  # fmt: skip
def test_what_stays(line: str) -> None:
    text = f"#!/bin/sh\n#SBATCH {line}\nsrun app\n"
    if line != "--begi":
        assert read_script(text).text == text
    else:
        assert read_script(text).text == "#!/bin/sh\n#\nsrun app\n", "getopt takes an unambiguous abbreviation"


@pytest.mark.parametrize(
    ("line", "found", "behind"),
    [
        ("-N 4 --time 5 job.sh -t 9", {"nodes": "4", "time": "5"}, "job.sh"),
        ("-N4 -vvHt5 -s -O job.sh", {"nodes": "4", "time": "5"}, "job.sh"),
        ("-A me -k -koff --no-kill --nice --qos high -x n1 job.sh", {"qos": "high"}, "job.sh"),
        ("--mail-user -t --reserv r job.sh", {"mail-user": "-t", "reservation": "r"}, "job.sh"),
        ("--hold --exclusive --requeue -t5 -- job.sh", {"hold": "", "time": "5"}, "job.sh"),
        ("-t 5 --wrap sleep", {"time": "5"}, "--wrap"),
        ("-t 5", {"time": "5"}, ""),
        ("--time", {"time": ""}, ""),
        ("-", {}, "-"),
    ],
)
def test_where_the_options_of_a_command_line_end(line: str, found: dict[str, str], behind: str) -> None:
    words = line.split()
    read = options.read_line(words)
    assert read is not None
    given, end = read
    assert (words[end] if end < len(words) else "") == behind
    assert found.items() <= given.items() and ("time" in found) == ("time" in given)


@pytest.mark.parametrize("line", ["--of-another-release 5 job.sh", "-Z job.sh", "--no job.sh", "-HZ job.sh"])
def test_an_option_that_is_not_known_ends_all_knowledge(line: str) -> None:
    assert options.read_line(line.split()) is None


WORDS = ["-t", "-Ht", "--time", "--hold", "-k", "--", "-", "a", "--wrap=a b", "--nice", "-vv"]


@given(st.lists(st.sampled_from(WORDS)))
def test_a_command_line_is_read_to_its_end_at_most(words: list[str]) -> None:
    read = options.read_line(words)
    assert read is not None and 0 <= read[1] <= len(words)


@given(st.text(alphabet="#SBATCH -=nodes4\n'\"\\", max_size=120))
def test_no_script_breaks_it(text: str) -> None:
    script = read_script(text)
    assert read_script(script.text).text == script.text, "nothing more to take out the second time"


def test_sizes() -> None:
    fixed = options.size_options(Shape((4, 4), 8, 2))
    assert fixed == ["--nodes=4", "--ntasks=32", "--ntasks-per-node=8", "--cpus-per-task=2"]
    ranged = options.size_options(Shape((2, 6), 8))
    assert ranged == ["--nodes=2-6", "--mincpus=8"], "tasks would keep it from its maximum"
    assert options.pending_size(Shape((2, 6), 8, 2)) == ["NumNodes=2-6", "NumCPUs=32", "NumTasks=16"]
    assert options.pending_size(Shape((3, 3), 1)) == ["NumNodes=3-3", "NumCPUs=3", "NumTasks=3"]


def test_what_the_record_says_beats_the_script() -> None:
    record = {
        "Account": "acc", "QOS": "high", "Features": "a&b", "Reservation": "r1", "Licenses": "lic:2",
        "Partition": "main", "TimeLimit": "02:00:00", "ExcNodeList": "n[7-8]", "Nice": "10", "Requeue": "0",
        "OverSubscribe": "NO", "MailUser": "me", "MailType": "END,FAIL", "WCKey": "*w",
    }  # fmt: skip
    environ = {"SBATCH_SIGNAL": "USR1@30", "SBATCH_OVERCOMMIT": "1"}
    found = options.carried_options(record, NOTHING, environ, Shape((1, 1), 1), 1)
    assert found == [
        "--account=acc", "--qos=high", "--constraint=a&b", "--reservation=r1", "--licenses=lic:2", "--exclude=n[7-8]",
        "--wckey=w", "--mail-user=me", "--mail-type=END,FAIL", "--partition=main", "--nice=10",
        "--no-requeue", "--exclusive", "--signal=USR1@30", "--overcommit",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("environ", "carried"),
    [
        ({"SLURM_DISTRIBUTION": "block:cyclic,nopack"}, ["--distribution=block:cyclic,nopack"]),
        ({"SLURM_DISTRIBUTION": "plane", "SLURM_DIST_PLANESIZE": "2"}, ["--distribution=plane=2"]),
        ({"SLURM_DISTRIBUTION": "plane"}, []),
        ({"SLURM_DISTRIBUTION": "cyclic", "SBATCH_DISTRIBUTION": "block"}, ["--distribution=cyclic"]),
        ({"SLURM_HINT": "nomultithread", "SLURM_THREADS_PER_CORE": "1"}, ["--hint=nomultithread"]),
        ({"SLURM_THREADS_PER_CORE": "1", "SLURM_OVERCOMMIT": "1"}, ["--threads-per-core=1", "--overcommit"]),
        ({"SLURM_SIGNAL": "x", "SLURM_MEM_BIND": "quiet", "SLURM_CPU_BIND": "none"}, []),
    ],
)  # fmt: skip
def test_what_sbatch_leaves_of_its_command_line(environ: dict[str, str], carried: list[str]) -> None:
    assert options.carried_options({}, NOTHING, environ, Shape((1, 1), 1), 1) == carried


def test_several_partitions_stay_several() -> None:
    text = "#!/bin/sh\n#SBATCH -p main,side --time-min=10\n"
    script, shape = read_script(text), Shape((1, 1), 1)
    found = options.carried_options({"Partition": "side", "TimeLimit": "10:00"}, script, {}, shape, 1)
    assert found == [], "the script's own partitions stand"
    assert options.partitions({"Partition": "side"}, text) == ("main", "side")
    assert options.carried_options({"Partition": "debug"}, script, {}, shape, 1) == ["--partition=debug"]
    assert options.partitions({"Partition": "debug"}, text) == ("debug",)


@pytest.mark.parametrize(
    ("record", "environ", "form"),
    [
        ({"MinMemoryNode": "4G"}, {}, ["--mem=4G"]),
        ({"MinMemoryCPU": "2G"}, {}, ["--mem-per-cpu=2G"]),
        ({"MinMemoryCPU": "1500M"}, {"SLURM_MEM_PER_CPU": "1500"}, ["--mem-per-cpu=1500M"]),
        ({"MinMemoryNode": "64G"}, {"SLURM_MEM_PER_GPU": "8192"}, ["--mem-per-gpu=8192M"]),
        ({"MinMemoryNode": "0"}, {}, []),
        ({}, {"SLURM_MEM_PER_NODE": "0"}, []),
        ({"MinMemoryNode": "500M"}, {"SLURM_MEM_PER_NODE": "500", "SLURM_MEM_PER_CPU": "7"}, ["--mem-per-cpu=7M"]),
    ],
)  # fmt: skip
def test_one_form_of_memory(record: dict[str, str], environ: dict[str, str], form: list[str]) -> None:
    assert options.carried_options(record, NOTHING, environ, Shape((1, 1), 1), 1) == form


@pytest.mark.parametrize(
    ("record", "form"),
    [
        ({"TresPerNode": "gres:gpu:a100:2"}, ["--gres=gpu:a100:2"]),
        ({"TresPerNode": "gres/gpu:2,gres/shard:1"}, ["--gres=gpu:2,shard:1"]),
        ({"TresPerNode": "gres:gpu"}, ["--gres=gpu"]),
        ({"TresPerJob": "gres:gpu:8"}, ["--gpus-per-node=2"]),
        ({"TresPerJob": "gres/gpu:v100:6"}, ["--gpus-per-node=v100:2"]),
        ({"TresPerJob": "gres:gpu:0"}, []),
        ({"TresPerTask": "cpu=2,gres/gpu=1"}, ["--gpus-per-node=3"]),
        ({"TresPerTask": "cpu:2"}, []),
        ({"TresPerNode": "gres:gpu:2", "TresPerJob": "gres:gpu:8"}, ["--gres=gpu:2"]),
        ({"TresPerNode": "gres:gpu:2", "CpusPerTres": "gres:gpu:4"}, ["--gres=gpu:2", "--cpus-per-gpu=4"]),
    ],
)  # fmt: skip
def test_generic_resources_become_a_number_a_node(record: dict[str, str], form: list[str]) -> None:
    assert options.carried_options(record, NOTHING, {}, Shape((2, 2), 3), 4) == form


@pytest.mark.parametrize(
    ("pattern", "named"),
    [("run.out", "run.g0004.out"), ("run.g0003.out", "run.g0004.out"), ("logs/run", "logs/run.g0004"),
     ("a.b/run.tar.gz", "a.b/run.tar.g0004.gz"), ("slurm-%j.out", "slurm-%j.out"), ("x-%A_%a", "x-%A_%a"),
     ("x-%4j.out", "x-%4j.out"), ("/dev/null", "/dev/null"), ("%x.log", "%x.g0004.log"), (".log", ".log.g0004")],
)  # fmt: skip
def test_the_generation_in_file_names(pattern: str, named: str) -> None:
    assert options.with_generation(pattern, 4) == named


@pytest.mark.parametrize(
    ("lines", "paths", "found"),
    [
        ("", ("/w/slurm-456.out", "/w/slurm-456.out"), ["--output=slurm-%j.out"]),
        ("-o out-%x-%j.txt", ("/w/out-my job-456.txt",) * 2, ["--output=out-%x-%j.txt"]),
        ("-o run.out", ("/w/run.out",) * 2, ["--output=run.g0002.out"]),
        ("-o run.out -e run.err", ("/w/run.out", "/w/run.err"), ["--output=run.g0002.out", "--error=run.g0002.err"]),
        # the command line said otherwise than the script
        ("-o run.out", ("/x/other.out",) * 2, ["--output=/x/other.g0002.out"]),
        ("", ("/w/here-456.log",) * 2, ["--output=here-%j.log"]),
        ("", ("/w/4567.log",) * 2, ["--output=4567.g0002.log"]),
        # releases that show the pattern
        ("-o run-%j.out", ("/w/run-%j.out",) * 2, ["--output=run-%j.out"]),
        ("", ("/w/%x.out",) * 2, ["--output=/w/%x.g0002.out"]),
        ("", ("/dev/null",) * 2, ["--output=/dev/null"]),
    ],
)
def test_output_files(lines: str, paths: tuple[str, str], found: list[str]) -> None:
    record = {"WorkDir": "/w", "StdOut": paths[0], "StdErr": paths[1]}
    script = read_script(f"#!/bin/sh\n#SBATCH {lines}\n")
    assert options.output_options(record, script, "456", 2) == ["--open-mode=append", *found]


def test_names_and_comments_are_the_users_own_with_ours() -> None:
    assert options.job_name({"JobName": "sim"}, 2, "abc1") == "sim.g0002.abc1"
    assert options.job_name({"JobName": "sim.v2.g0002.abc1"}, 3, "def2") == "sim.v2.g0003.def2"
    assert options.comment({}, "dmr:r:2:abc1") == "dmr:r:2:abc1"
    assert options.comment({"Comment": "dmr:r:1:x mine, too"}, "dmr:r:2:y") == "dmr:r:2:y mine, too"


@pytest.mark.parametrize(
    ("environ", "line", "option"),
    [
        ({}, "", "--export=ALL"),
        ({}, "--export=NONE", "--export=DMR_A,DMR_B"),
        ({"SLURM_EXPORT_ENV": "NONE"}, "", "--export=DMR_A,DMR_B"),
        ({"SLURM_EXPORT_ENV": "FOO,BAR=1"}, "", "--export=FOO,BAR=1,DMR_A,DMR_B"),
        ({"SLURM_EXPORT_ENV": "FOO,DMR_A,DMR_B"}, "", "--export=FOO,DMR_A,DMR_B"),
        ({"SLURM_EXPORT_ENV": "DMR_A,DMR_B"}, "", "--export=DMR_A,DMR_B"),
        ({"SLURM_EXPORT_ENV": "ALL,FOO=a"}, "", "--export=ALL"),
        ({"SBATCH_EXPORT": "NIL"}, "", "--export=DMR_A,DMR_B"),
    ],
)
def test_export(environ: dict[str, str], line: str, option: str) -> None:
    script = read_script(f"#!/bin/sh\n#SBATCH {line}\n")
    assert options.export_option(script, environ, ["DMR_A", "DMR_B"]) == option


def test_scrubbed_environment() -> None:
    environ = {
        "PATH": "/bin", "SLURM_CONF": "/c", "SLURM_CLUSTERS": "a", "SLURM_CPU_BIND": "x", "SLURM_ARRAY_TASK_ID": "3",
        "SBATCH_PARTITION": "p", "SRUN_DEBUG": "3", "PMIX_RANK": "0", "PMI_RANK": "0", "OMPI_COMM_WORLD_RANK": "0",
        "OMPI_MCA_ess": "pmi", "OMPI_MCA_orte_x": "1", "OMPI_MCA_btl": "tcp,self",
        "OMPI_ALLOW_RUN_AS_ROOT": "1", "DMR_X": "y",
    }  # fmt: skip
    kept = {"PATH", "SLURM_CONF", "SLURM_CLUSTERS", "OMPI_MCA_btl", "OMPI_ALLOW_RUN_AS_ROOT", "DMR_X"}
    assert set(without_scheduler(environ)) == kept
    outside = {key: value for key, value in environ.items() if key != "OMPI_COMM_WORLD_RANK"}
    assert set(without_scheduler(outside)) == kept | {"OMPI_MCA_ess", "OMPI_MCA_orte_x"}, "a user's own settings"


def test_sizes_in_the_environment_are_those_held() -> None:
    from dmr.launcher.engines.engine import Allocation

    stale = {"SLURM_JOB_NODELIST": "n[1-4]", "SLURM_NTASKS": "8", "SLURM_JOB_CPUS_PER_NODE": "4(x3),2",
             "SLURM_EXPORT_ENV": "NONE", "SLURM_NTASKS_PER_NODE": "2", "X": "1"}  # fmt: skip
    held = Allocation("1", ("n1", "n3"), 2, 2)
    fresh = step_environment(stale, held, by_srun=False)
    assert fresh == {
        "X": "1", "SLURM_JOB_NODELIST": "n1,n3", "SLURM_NODELIST": "n1,n3", "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NNODES": "2", "SLURM_NTASKS": "4", "SLURM_NPROCS": "4", "SLURM_TASKS_PER_NODE": "2(x2)",
        "SLURM_JOB_CPUS_PER_NODE": "2(x2)",
        "SLURM_CPUS_PER_TASK": "2", "SRUN_CPUS_PER_TASK": "2", "SLURM_OVERLAP": "1",
    }  # fmt: skip
    assert step_environment(stale, held, by_srun=True)["SLURM_NTASKS_PER_NODE"] == "2"


@pytest.mark.parametrize(
    ("pattern", "job", "path"),
    [
        ("jq.g0002.out", "12", "jq.g0002.out"),
        ("slurm-%j.out", "12", "slurm-12.out"),
        ("a-%A_%a.out", "12_3", "a-12_3.out"),
        ("%x.out", "12", None),
        (None, "12", None),
    ],
)
def test_where_a_successor_writes(pattern: str | None, job: str, path: str | None) -> None:
    argv = ("sbatch", *([f"--output={pattern}"] if pattern else []))
    assert output_of(Prepared(argv, "", (), "job.sh", {}, None), job) == path
