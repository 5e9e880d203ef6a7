"""How many batches keep their records. The command line reads it at each start, so it imports nothing."""

RETAIN_BATCHES = 100
"""Committed batches whose records stay, as Structured Streaming's ``minBatchesToRetain``."""

RETAIN_AT_LEAST = 10
"""Fewer are refused: each run that is that many batches behind would have to begin again."""
