"""The command group ``airflow scope``."""
