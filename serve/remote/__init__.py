"""The client's side: lines spoken by a server with OpenAI's ``/v1/audio/speech``, ours or another."""
