"""Delta tables, read without a JVM; and the rules of their schemas and writes."""
