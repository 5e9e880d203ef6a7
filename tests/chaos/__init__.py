"""A real Airflow, whose processes are killed and frozen while it loads files by SCOPE jobs."""
