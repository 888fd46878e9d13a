"""What all tests share: property tests that repeat themselves, and no network."""

import os

from hypothesis import settings

os.environ["HF_HUB_OFFLINE"] = "1"

# The same examples in every run: a failure in one place is a failure everywhere.
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=60)
settings.load_profile("repeatable")
