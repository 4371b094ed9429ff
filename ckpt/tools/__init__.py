"""What is done with checkpoints beside a run: export, import, conversion, comparison."""
