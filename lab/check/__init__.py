"""Test a checkpoint on its user's device: parity with upstream, speed, and the alignment head."""
