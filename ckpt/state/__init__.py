"""What a program hands over to be saved, described: arrays, values, generators, and what several arrays make up."""
