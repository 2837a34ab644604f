"""Reads what an agent did out of a transcript: messages, and the files in which coding agents keep their sessions."""
