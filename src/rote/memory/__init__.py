"""The memory that recordings hold: finished sessions, counted and released together."""
