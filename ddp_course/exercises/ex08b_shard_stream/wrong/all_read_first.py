"""all read first

The whole stream was read before the first sample was passed on. Pass samples on as they come: a
stream may be endless.
"""

return iter(list(stream)[rank * workers + worker :: world_size * workers])
