"""SCOPE jobs on Azure Data Lake Analytics: their scripts, their service, and what became of them."""
