"""Slurm by its own commands, 22.05 to 26.05: queries, changes of size, submission.

What differs between these releases, and where it is met:

===========================================================  =====================================================
difference                                                   met in
===========================================================  =====================================================
``--json`` changes its shape                                 not used: explicit columns, `.parse`
``to start at T a using`` of ``--test-only`` (25.05)         `.parse.test_only_start`
record: ``TRES=`` is ``ReqTRES= AllocTRES=`` (23.02)         `.parse.record`, which takes any key Slurm has had
record: arguments behind ``Command=`` end with 22.05,        `.script.own_arguments`
``SubmitLine=`` begins with 25.11
``gres:gpu:2`` is ``gres/gpu:2``, ``gres/gpu=2``             `.options`
a range of nodes with tasks starts near its minimum (22.05)  `.options.size_options`
SRUN_CPUS_PER_TASK is needed (22.05 to 23.02)                `.environment.step_environment`
SLURM_JOB_END_TIME is set (23.02)                            `.held`, without which squeue tells
without accounting, a job shrinks once (to 24.05)            `.engine.SlurmEngine.keep`: then a successor
``srun --mpi=list`` in three forms                           `..mpi.parse_plugins`
===========================================================  =====================================================
"""
