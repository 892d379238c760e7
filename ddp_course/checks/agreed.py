"""What the ranks' driver and an exercise's oracle must agree on; nothing here is a secret."""

from __future__ import annotations

CPU = -1  # ex01: instead of a GPU's number; no device_ids are [CPU]
LEARNING_RATE, MOMENTUM = 0.1, 0.9  # ex04: of its optimizer
