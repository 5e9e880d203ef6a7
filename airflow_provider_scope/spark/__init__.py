"""The Spark application. Shipped to Spark with ``core`` and ``exceptions``; never imports Airflow."""
