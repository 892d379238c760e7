"""All of ours that a job imports: where a rank is, what it reports, its data."""
