"""Tests of a checkpoint on the device of its user: parity with upstream, speed, and the head that follows the text."""
