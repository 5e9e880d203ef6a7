"""Airflow hooks: a connection becomes a client."""
