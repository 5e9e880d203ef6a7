"""The REST clients against a small HTTP server on loopback."""
