"""The server's routes, and what they share: the model, its voices, the metrics and the access log."""
