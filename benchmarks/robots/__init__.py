"""Closed loops: policies of lerobot act in simulators, plainly and graphed, with whole or quantized weights.

``python -m benchmarks.robots --world pusht --policy act`` plays whole episodes and writes a table, a JSON
file, a GIF and a plot of latencies. ``make robots`` does that in an environment of its own.
"""
