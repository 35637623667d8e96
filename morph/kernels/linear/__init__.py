"""Linear layers in Triton."""
