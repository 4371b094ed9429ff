"""Schedules of whole workloads, with malleable jobs resized by the same policies as real runs."""
