"""From evidence to one sentence: what happened first, and what to do."""
