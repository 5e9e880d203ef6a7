"""Stores: listing sources and keeping control files, one module for each kind."""
