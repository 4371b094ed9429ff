"""What a pending job waits for, by Slurm's word for it (22.05 to 26.05). Pure."""

from __future__ import annotations

import re
from typing import Literal

WaitsFor = Literal["nodes", "limit", "event", "never"]

_NEVER = re.compile(
    r"PartitionNodeLimit|PartitionTimeLimit|PartitionInactive|PartitionConfig|BadConstraints|DependencyNeverSatisfied|"
    r"InvalidAccount|InvalidQOS|AccountNotAllowed|QOSNotAllowed|QOSTimeLimit|AssociationTimeLimit|TimeLimit|DeadLine|"
    r"MaxMemPerLimit|ReservationDeleted|ReservationInvalid|Constraints|"
    r"QOSMin\w+|(?:QOS|Assoc)Max\w*Per(?:Job|Node)(?:Limit)?"
)
# Of the user or the account together: other jobs of theirs have to end first, this run's own among them.
_LIMIT = re.compile(
    r"(?:QOS|Assoc)Grp\w+|QOSMax\w+Per(?:User|Account)(?:Limit)?|Max\w+Per(?:User|Account)|AssocMax\w+Limit|"
    r"QOSJobLimit|QOSResourceLimit|QOSUsageThreshold|AssociationJobLimit|AssociationResourceLimit|AccountingPolicy|"
    r"MaxPoweredUpNodes"
)
_EVENT = re.compile(
    r"Dependency|BeginTime|JobHeld\w+|JobHoldMaxRequeue|Reservation|Licenses|JobArrayTaskLimit|BurstBuffer\w+|Prolog|"
    r"Cleaning|FedJobLock|SystemFailure|JobLaunchFailure|NonZeroExitCode|RaisedSignal|OutOfMemory|PartitionDown|"
    r"InactiveLimit|FrontEndDown|Block\w+|MpiPortsBusy|NvidiaImexChannels|Power\w+"
)


def waits_for(reason: str) -> WaitsFor:
    """Tell what has to happen for a pending job to start.

    Returns
    -------
    {"nodes", "limit", "event", "never"}
        ``nodes`` to come free (also with no reason, or one not known); ``limit`` of user or account to allow it, so
        that other jobs of theirs have to end; ``event`` outside of the queue (a dependency, a hold, a time,
        licenses); ``never``: whatever comes free, it would pend for ever.
    """
    word = re.split(r"[\s,:(]", reason.strip(" ()"), maxsplit=1)[0]
    if _NEVER.fullmatch(word):
        return "never"
    if _LIMIT.fullmatch(word):
        return "limit"
    return "event" if _EVENT.fullmatch(word) else "nodes"
