"""A run as data: its folder, what is read from it, the Run object."""
