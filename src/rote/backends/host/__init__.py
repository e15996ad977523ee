"""The CPU as a device to capture on: a tape of ATen operations, replayed into the same memory."""
