"""Judges of answers, programs and boards, for rollouts and for evaluation."""
