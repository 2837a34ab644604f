"""What proves a statement: the call, file or text that shows it, compared with its literals."""
