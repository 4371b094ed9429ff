"""A folder of the node first, the shared one behind."""
