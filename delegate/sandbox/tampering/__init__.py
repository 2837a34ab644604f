"""What decides the result of a command without being its subject: git's files, tests, configuration, scripts."""
