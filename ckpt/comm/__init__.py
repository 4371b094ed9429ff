"""The ranks together: collective operations, agreement on errors, and the end of all when one is lost."""
