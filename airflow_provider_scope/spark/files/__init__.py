"""Files to typed rows, strictly: one module for each format."""
