"""Measurements, one command a table: ``python -m benchmarks.<table>`` from the repository's root."""
