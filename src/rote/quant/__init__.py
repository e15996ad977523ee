"""DuQuant: linear layers with 4-bit weights and 8-bit activations, made for graphs."""
