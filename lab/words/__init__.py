"""Measure the alignment head's word times and fault detection against a recogniser. See ``__main__``."""
