"""Shared by the engines: captured graphs, workspaces, fallbacks, errors as text, atomic files."""
