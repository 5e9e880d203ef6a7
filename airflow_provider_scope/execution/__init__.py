"""The micro-batch loop."""
