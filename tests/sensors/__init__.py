"""Tests of sensors and of what they wait with."""
