"""The change data feed of a Delta table."""
