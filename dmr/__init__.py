"""Malleable MPI jobs by checkpoint and restart."""
