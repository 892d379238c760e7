"""Programs that are run by their path, with the standard library only, and who talks to them."""
