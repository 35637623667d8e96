"""The page's view of a running node: progress, streamed speech, and finished recordings."""
