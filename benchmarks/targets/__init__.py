"""The benchmark set: programs as people write them, all from configurations, with random weights.

Each file has functions named ``build...`` that return ``(callable, args, kwargs)``, as ``rote bench`` and
``rote profile`` take them: ``rote profile benchmarks.targets.llama:build --arg batch=8``. With ``small=True``
every part of a program is there, small enough for a test on a CPU.
"""
