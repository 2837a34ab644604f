"""What a person sees: tables, screens, progress, and questions."""
