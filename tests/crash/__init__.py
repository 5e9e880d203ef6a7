"""Kill runs everywhere, run them again, and compare everything with a run that nothing happened to.

``python -m tests.crash`` runs all parts; a small part of each runs in the test suite.
"""
