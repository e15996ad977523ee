"""What every layer uses and needs only the standard library: errors, source locations, settings."""
