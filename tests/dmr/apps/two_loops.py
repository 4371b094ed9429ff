"""Two loops with set-up between them that must happen once."""

import sys
import time

import dmr


@dmr.malleable
def main(run: dmr.Run) -> None:
    trace = run.value("trace", [])
    for step in run.steps(5):
        trace.value.append(["first", step])
    if run.once("between"):
        trace.value.append(["between"])
    for step in run.steps(40, start=10):
        trace.value.append(["second", step])
        time.sleep(float(sys.argv[1]))
    if run.rank == 0:
        right = [["first", s] for s in range(5)] + [["between"]] + [["second", s] for s in range(10, 40)]
        print("trace right" if trace.value == right else f"trace wrong: {trace.value}", "step", run.step, flush=True)


main()
