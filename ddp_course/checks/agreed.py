"""What the ranks' driver and an exercise's oracle must agree on; nothing here is a secret."""

from __future__ import annotations

BACK = "back"  # instead of a line: this rank has come back from the learner's function
CPU = -1  # ex01: instead of a GPU's number; no device_ids are [CPU]
# So many further numbers are averaged, or handed over, beside the few that a verdict shows: what a
# right answer moves must stand out from what any job moves.
BALLAST = 32768
SAVED_BALLAST = 8192  # where every step writes a checkpoint
ROUNDS = 100  # where one call can only move a few bytes
MESSAGE = (
    100  # bytes: no packet with a number in it is smaller on the loopback, its headers included
)
LEARNING_RATE, MOMENTUM = 0.1, 0.9  # ex04: of its optimizer
