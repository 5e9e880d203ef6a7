"""Triggers: wait in the triggerer, and fire once with a small event."""
