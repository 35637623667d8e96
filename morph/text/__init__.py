"""Text: normalizing and splitting it, scripts and subtitles. Imports no torch."""
