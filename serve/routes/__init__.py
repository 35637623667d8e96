"""The server's routes, and what they share: the model, its voices and the metrics."""
