"""The Triton kernels. Only :mod:`..launching` imports them, at the first launch."""
