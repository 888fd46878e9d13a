"""Scores, intervals, tables and curves as plain values."""
