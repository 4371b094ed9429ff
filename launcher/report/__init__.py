"""What a run was worth: as a page, as text, as data."""
