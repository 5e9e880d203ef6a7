"""The pipeline's records on storage."""
