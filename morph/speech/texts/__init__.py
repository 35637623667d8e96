"""The text of a line, whole or as it comes, on its way to pieces."""
