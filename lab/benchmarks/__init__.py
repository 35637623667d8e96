"""Measurements, one command a table: ``python -m lab.benchmarks.<table>`` from the repository's root."""
