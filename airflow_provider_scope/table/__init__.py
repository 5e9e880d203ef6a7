"""Reading Delta tables without a JVM."""
