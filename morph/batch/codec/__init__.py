"""Between the frames of a running batch: codes to chunks, and to complete samples."""
