"""Judges of answers, programs, boards and pictures."""
