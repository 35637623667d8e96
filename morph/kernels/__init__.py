"""Triton kernels, each beside the torch operations that stand in for it. Importing one needs Triton."""
