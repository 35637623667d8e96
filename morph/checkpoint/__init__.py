"""Find, verify, download and load checkpoints, with their adapters, tails and settings."""
