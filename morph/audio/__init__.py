"""Sound files and streams: the table of formats, one writer, one reader; imports no torch."""
