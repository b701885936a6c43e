"""Measures speed and accuracy, as ratios to other ways of looking at the same logs."""
