"""Instruments: what a callable costs, and what the ways of graphing it make of that."""
