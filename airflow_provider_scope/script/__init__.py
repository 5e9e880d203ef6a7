"""SCOPE scripts: lexer, statements, generator, check of the user's SELECT, and its way to Spark SQL."""
