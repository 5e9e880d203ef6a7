"""Decisions on values: no input or output, no clock, no randomness."""
