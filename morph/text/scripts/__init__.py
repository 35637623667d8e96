"""Scripts and captions: read their lines, speakers and times; write subtitle files."""
