"""One rank makes a safe point less than the others."""

import dmr


@dmr.malleable
def main(run: dmr.Run) -> None:
    for step in run.steps(50, start=1 if run.rank == 1 else 0):
        run.comm.Barrier() if step > 100 else None


main()
