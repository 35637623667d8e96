"""The codec in Triton."""
