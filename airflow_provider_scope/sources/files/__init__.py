"""Files of one or more folders."""
