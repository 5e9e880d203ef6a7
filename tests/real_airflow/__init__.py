"""A real Airflow on this machine: four processes and PostgreSQL, on loopback, in a folder of its own."""
