"""Rows of a table or a database, by a column whose values only grow (or only fall)."""
