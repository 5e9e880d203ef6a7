"""``airflow scope init``: it looks at a source, and writes the Dag file that loads it."""
