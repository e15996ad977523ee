"""Read-only views: what a program costs, and what a recording holds."""
