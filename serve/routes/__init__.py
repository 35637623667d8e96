"""The server's routes, and what they share: the model that speaks, its voices, the counts and the access log."""
