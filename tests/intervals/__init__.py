"""A real Airflow that loads intervals into one table: by catchup, by backfill, cleared, and killed."""
