"""Buttons of a task in the UI."""
