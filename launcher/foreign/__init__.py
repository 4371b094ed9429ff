"""Programs in any language that write restart files of their own: described in a TOML file, watched from outside.

`description` is what the file says, `load` reads it, `start` starts the program (again), and `monitor` stands in for
the application's end of the run directory.
"""
