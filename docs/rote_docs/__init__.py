"""What the pages take from the code and from the measurements instead of repeating it."""
