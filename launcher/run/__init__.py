"""The run directory: its files, their readers and writers, and what can be told of a run from them alone."""
