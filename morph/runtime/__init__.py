"""Shared by the GPU engines: captured graphs, workspaces, fallbacks, errors as text."""
