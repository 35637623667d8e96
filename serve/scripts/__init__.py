"""What the commands for scripts and captions share: who speaks, with what, and which lines are spoken already."""
