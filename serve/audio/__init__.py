"""Sound as bytes: the formats that are written, those that only PyAV reads, and speed without a change of pitch."""
