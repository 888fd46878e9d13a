"""Judges of choices and pictures."""
