"""The script that ``spark-submit`` runs: ``main.py <path of the plan file>``."""

import sys

from airflow_provider_scope.spark.app import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
