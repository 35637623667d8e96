"""Measurements, one command per table: ``python -m lab.benchmarks.<table>`` from the repository's root."""
