"""The server process: start, here or under Ray; port, connections, and shutdown."""
