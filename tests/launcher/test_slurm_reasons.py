"""Every reason that Slurm 22.05 to 26.05 knows, and what it means."""

from __future__ import annotations

import pytest

from dmr.launcher.slurm.reasons import waits_for

NODES = "None Priority Resources ReqNodeNotAvail NodeDown SchedDefer InvalidReason"
EVENT = """Dependency BeginTime JobHeldAdmin JobHeldUser JobHoldMaxRequeue Reservation Licenses JobArrayTaskLimit
    BurstBufferResources BurstBufferStageIn BurstBufferOperation Prolog Cleaning FedJobLock SystemFailure
    JobLaunchFailure
    NonZeroExitCode RaisedSignal OutOfMemory PartitionDown InactiveLimit FrontEndDown BlockMaxError BlockFreeAction
    PowerNotAvail PowerReserved MpiPortsBusy NvidiaImexChannels"""
NEVER = """PartitionNodeLimit PartitionTimeLimit PartitionInactive PartitionConfig BadConstraints Constraints TimeLimit
    DependencyNeverSatisfied InvalidAccount InvalidQOS AccountNotAllowed QOSNotAllowed QOSTimeLimit AssociationTimeLimit
    DeadLine MaxMemPerLimit ReservationDeleted ReservationInvalid QOSMinCpuNotSatisfied QOSMinNode QOSMinGRES QOSMinBB
    QOSMaxCpuPerJobLimit QOSMaxCpuMinutesPerJobLimit QOSMaxNodePerJobLimit QOSMaxWallDurationPerJobLimit
    QOSMaxCpuPerNode
    QOSMaxMemoryPerJob QOSMaxNodeMinutesPerJob QOSMaxGRESPerNode AssocMaxCpuPerJobLimit AssocMaxNodePerJobLimit
    AssocMaxWallDurationPerJobLimit AssocMaxCpuMinutesPerJobLimit AssocMaxMemPerJob AssocMaxMemPerNode
    AssocMaxGRESPerJob
    AssocMaxUnknownMinutesPerJob AssocMaxBillingPerNode"""
LIMIT = """QOSGrpCpuLimit QOSGrpNodeLimit QOSGrpNodeRunMinutes QOSGrpJobsLimit QOSGrpSubmitJobsLimit QOSGrpWallLimit
    QOSMaxCpuPerUserLimit QOSMaxJobsPerUserLimit QOSMaxNodePerUserLimit QOSMaxSubmitJobPerUserLimit QOSMaxGRESPerUser
    QOSMaxMemoryPerUser AssocGrpCpuLimit AssocGrpNodeLimit AssocGrpJobsLimit AssocGrpMemRunMinutes AssocMaxJobsLimit
    AssocMaxSubmitJobLimit AssociationJobLimit AssociationResourceLimit QOSJobLimit QOSResourceLimit QOSUsageThreshold
    MaxNodePerAccount MaxCpuPerAccount MaxJobsPerAccount MaxSubmitJobsPerAccount MaxNodeRunMinsPerUser
    MaxGRESRunMinsPerAccount AccountingPolicy MaxPoweredUpNodes"""
KNOWN = [
    (reason, meaning)
    for words, meaning in ((NODES, "nodes"), (EVENT, "event"), (NEVER, "never"), (LIMIT, "limit"))
    for reason in words.split()
]


@pytest.mark.parametrize(("reason", "meaning"), KNOWN)
def test_known_reasons(reason: str, meaning: str) -> None:
    assert waits_for(reason) == meaning


@pytest.mark.parametrize(
    ("reason", "meaning"),
    [("", "nodes"), ("(Resources)", "nodes"), ("SomethingNew", "nodes"), ("Dependency(afterany:3)", "event"),
     ("ReqNodeNotAvail, UnavailableNodes:n[1-2]", "nodes"), ("QOSMaxNodePerUserLimit, and more", "limit")],
)  # fmt: skip
def test_as_squeue_shows_them(reason: str, meaning: str) -> None:
    assert waits_for(reason) == meaning
