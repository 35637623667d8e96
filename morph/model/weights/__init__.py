"""Weights: full precision or INT8, several seen as one, and whether they were moved or replaced."""
