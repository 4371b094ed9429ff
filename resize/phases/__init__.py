"""Phases of a run: found or declared, what each used of what it held, and whether each request did good. Pure."""
