"""Measurements of rote against eager and against its peers; ``python -m benchmarks.run``."""
