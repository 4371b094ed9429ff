"""What this place allows: Python and its packages, MPI, HDF5, Slurm, the file system. A line each, and what to do."""
