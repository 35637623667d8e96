"""What the page shows while a node runs: progress, streamed speech, and the recordings made."""
