import dmr


@dmr.malleable
def main(run: dmr.Run) -> None:
    for _ in run.steps(3):
        for _ in run.steps(3):
            pass


main()
