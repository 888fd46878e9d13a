"""Where the repository lies, and the data beside it that some tests read."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "data"
"""Absent on most machines: tests that need it skip."""
