"""What a call depends on: the key of its arguments, the ambient modes, and the Python state under guard."""
