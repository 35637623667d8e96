"""The codec engine: rows of many lines, decoded together."""
