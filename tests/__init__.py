"""Tests: their helpers explain a failed assert as a test module does."""

import pytest

pytest.register_assert_rewrite("tests.spark", "tests.support")
