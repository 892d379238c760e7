"""The commands of `python -m ddp_course`, a module for each family; each adds its own parsers."""
