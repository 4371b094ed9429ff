"""Record what the Slurm installed here prints for the launcher's queries, for the parsers' tests.

Run it on a machine with another release of Slurm and add the folder that it writes: ``python record.py``.
"""

from __future__ import annotations

import time
from pathlib import Path

from dmr.launcher.cluster import PrivateCluster
from dmr.launcher.slurm import parse

JOB = """#!/bin/sh
#SBATCH --nodes=2 --ntasks-per-node=2 --time=10:00 --mem=100
srun -N1 -n1 --overlap --job-name=dmr-1-1 sleep 300
"""


def main() -> None:
    with PrivateCluster(nodes=5, partitions=("main", "side Nodes=n[1-3] MaxNodes=2 MaxTime=30")) as cluster:
        release = "{:02d}.{:02d}".format(*parse.version(cluster.run(["sbatch", "--version"]).stdout))
        folder = Path(__file__).parent / release
        folder.mkdir(exist_ok=True)
        script = cluster.folder / "job.sh"
        script.write_text(JOB)

        def run(*argv: str) -> str:
            done = cluster.run(argv, check=False, cwd="/tmp", env={"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"})
            return done.stdout + done.stderr

        def submit(*options: str) -> str:
            return run("sbatch", "--parsable", "--output=/dev/null", *options, str(script), "a b", "c").strip()

        first = submit("--job-name=my UserId= job", "--comment=dmr:run1:1:abc12 NodeList=n9 | odd\nlines")
        submit("--nodes=1", "--exclusive", "--partition=side")
        time.sleep(4)
        submit("--nodes=3-5", "--ntasks-per-node=2", "--comment=dmr:run1:2:def34")
        submit("--nodes=4", "--array=3-9:2,12%2")
        submit("--nodes=2", f"--dependency=afterany:{first}", "--partition=main,side")
        ended = submit("--nodes=1")
        run("scancel", ended)
        run("scontrol", "update", "NodeName=n5", "State=DRAIN", "Reason=test")
        time.sleep(3)
        answers = {
            "queue": run("squeue", "-h", "-a", "-t", "all", "-O", parse.QUEUE_FORMAT),
            "nodes": run("sinfo", "-h", "-a", "-N", "-o", parse.NODE_FORMAT),
            "steps": run("squeue", "-h", "-s", "-j", first, "-o", parse.STEP_FORMAT),
            "record": run("scontrol", "show", "job", "-o", first),
            "plugins": run("srun", "--mpi=list"),
            "version": run("sbatch", "--version"),
            "test-only": run("sbatch", "--test-only", "-N4", "-p", "main", str(script)),
            "unknown-job": run("squeue", "-h", "-j", "4711"),
            "refused": run("sbatch", "-p", "nowhere", str(script)),
            "no-growth": run("scontrol", "update", f"JobId={first}", "NumNodes=4"),
        }
        for name, text in answers.items():
            text = text.replace(str(cluster.folder), "/home/user")
            (folder / f"{name}.txt").write_text(text)
        print(f"recorded Slurm {release} in {folder}")


if __name__ == "__main__":
    main()
