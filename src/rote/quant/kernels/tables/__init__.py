"""Measured tiles, a JSON file for each GPU."""
