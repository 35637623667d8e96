"""Utilities of the engines: captured graphs, workspaces, fallbacks, locks, threads, atomic files."""
