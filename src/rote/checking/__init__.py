"""The check: a callable runs on pretended device tensors, and what a capture would mind is noted."""
