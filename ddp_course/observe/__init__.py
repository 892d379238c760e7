"""What ranks leave behind: the scribe inside a rank, and the readers of what it wrote."""
