"""Slurm by its own commands: queries, submission, changes of size."""
