"""The launcher's life: how it comes to a run, what it does while the ranks run, how it hands over and leaves."""
