"""What criteria in words are about, read before their child's work is known: by their own word, or once by a model."""
