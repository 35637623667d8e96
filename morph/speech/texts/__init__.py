"""The text of a line, complete or as it comes, on its way to pieces."""
