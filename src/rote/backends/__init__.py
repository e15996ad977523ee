"""The devices that segments are captured on, behind one protocol: CUDA graphs, and a tape on the CPU."""
