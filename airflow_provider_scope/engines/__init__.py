"""Engines: what turns a user's engine value into a running one."""
