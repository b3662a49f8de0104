"""A lesson with two exercises."""
