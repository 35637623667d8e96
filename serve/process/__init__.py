"""The server as a process: how it starts, here or under Ray, on which port, its connections, and how it ends."""
