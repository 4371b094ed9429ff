"""Ends in the ways that are none of run.steps' own: by sys.exit, on all ranks or one, or by a break on one."""

import sys
import time

import dmr


@dmr.malleable
def main(run: dmr.Run, how: str) -> None:
    run.value("nothing", 0)
    for step in run.steps(200):
        time.sleep(0.005)
        if step == 20 and how == "break" and run.rank == 1:
            break
        if step == 20 and (how == "all" or how == "one" and run.rank == 1):
            sys.exit()


main(sys.argv[1])
