"""Shared by the engines: captured graphs, workspaces, fallbacks, errors as text; files that are written whole."""
