"""What the GPU engines share: captured graphs, workspaces."""
