"""What the nodes of a run did over time: a sampler a node, its files, and readers of other records."""
