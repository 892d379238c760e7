"""What ranks leave behind: the recorder inside a rank, and the readers of what it wrote."""
