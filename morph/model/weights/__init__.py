"""Weights: full precision or INT8, joined views, and a check for moves."""
