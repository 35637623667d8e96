"""Negate conditions of the product one at a time, and count the mutants that its tests catch."""
