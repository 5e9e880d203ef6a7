"""The script that ``spark-submit`` runs for a validation: ``model_main.py <path of the plan file>``."""

import sys

from airflow_provider_scope.spark.model_check import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
