"""Incremental, exactly-once ingestion into Delta Lake tables from Apache Airflow."""

__version__ = "0.1.0"
