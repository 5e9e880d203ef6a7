"""``make demo``: real files into a Delta table in five acts, and a proof that every row is there once."""
