"""What users call: `rote.graph`, the graphed callable, its options and its report."""
