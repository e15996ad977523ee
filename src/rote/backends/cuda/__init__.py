"""CUDA as a device to capture on: segments are CUDA graphs in a shared memory pool."""
