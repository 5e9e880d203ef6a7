"""REST clients of Azure Data Lake Analytics and Azure Data Lake Storage Gen1; no Airflow."""
