"""Exit statuses of ``dmr-launch``.

======  ==============================================================================================
status  meaning
======  ==============================================================================================
0       the run has finished, was ended by ``dmr stop``, or goes on in another job (``--after-handover exit``)
1       the run has failed: restarts used up, or too many fast failures; ``dmr resume`` may continue it
2       the command line was not understood, or asks for what can't be
75      not finished, and nothing follows by itself: the time is up and no successor could be submitted, or this job
        could not be cancelled after a handover; ``dmr resume`` continues it
76      another launcher has taken over the run; where that is another job for certain, a batch job is cancelled, as
        after a handover (not with ``--after-handover exit``), so that its script does not go on with an unfinished run
130     stopped by Ctrl-C
143     stopped by SIGTERM (scancel)
other   the program's own, when it never spoke the protocol or failed in a way that a restart would repeat
======  ==============================================================================================
"""

from __future__ import annotations

FINISHED = 0
FAILED = 1
USAGE = 2
UNFINISHED = 75
FENCED = 76


def of_signal(number: int | None) -> int:
    """Return the exit status of a process that was ended by a signal."""
    return 128 + number if number else FAILED
