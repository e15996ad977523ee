"""Programs of many libraries, as their users write them: one file for each distribution, named as it is.

A program is a function that takes ``wrap`` and a device and yields, without end, all that its user sees of
one call. It wraps what its user would graph. The first line of its docstring is its title. Weights are
random, data are made, and nothing is downloaded.
"""
