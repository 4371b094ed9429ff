"""Where a test kills the launcher, to show that any instant will do."""

from __future__ import annotations

import os
import signal

ENV_KILL_AT = "DMR_TEST_KILL_AT"


def reached(step: str, generation: int) -> None:
    """Kill this process with SIGKILL if the environment names this step of the protocol.

    The variable holds ``step`` or ``generation:step``, several separated by commas.
    """
    wanted = os.environ.get(ENV_KILL_AT)
    if wanted and {step, f"{generation}:{step}"} & set(wanted.split(",")):
        os.kill(os.getpid(), signal.SIGKILL)
