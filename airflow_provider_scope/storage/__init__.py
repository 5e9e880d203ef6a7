"""Listing sources and keeping control files, one module a backend."""
