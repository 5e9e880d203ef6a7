"""SCOPE scripts."""
