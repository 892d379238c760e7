"""The exercises, one module each: how inputs are drawn, the oracle, mistakes and hints."""
