"""The script that ``spark-submit`` runs: ``main.py <path of the plan file>``."""

import sys

if __name__ == "__main__":
    if sys.version_info < (3, 11):  # noqa: UP036 - of a cluster's machine; the import below would fail obscurely
        version = ".".join(map(str, sys.version_info[:3]))
        sys.exit(f"RuntimeError: Spark's driver runs in Python {version} here, and needs 3.11 or newer")
    from airflow_provider_scope.spark.app import main

    sys.exit(main(sys.argv[1:]))
