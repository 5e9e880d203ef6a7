"""The protocol that loads every row exactly once: the steps of a run, its records, and their repair."""
