"""What the page shows while a node runs: its progress, the speech that it makes, and the recordings made."""
