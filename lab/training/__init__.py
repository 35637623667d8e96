"""What makes weights: random checkpoints for tests and benchmarks."""
