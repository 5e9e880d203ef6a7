"""What worker and application agree on about a database."""

from __future__ import annotations

CONF = "spark.airflow_provider_scope.jdbc."
"""Properties of the application begin so; Spark hides the value of the one that ends in "password"."""
