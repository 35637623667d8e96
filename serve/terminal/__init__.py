"""What the commands and the server share: arguments, messages, folders, sound, and from options to the engine."""
