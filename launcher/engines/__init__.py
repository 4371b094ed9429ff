"""Where ranks run: the engine that the supervisor needs, this machine as one, and how MPI programs are started."""
