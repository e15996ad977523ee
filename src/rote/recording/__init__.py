"""Observing, recording and replaying calls: the tracer, the tree of paths, the tape, the hot path."""
