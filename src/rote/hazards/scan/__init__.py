"""The source scan: what can be read from a program without running or importing it.

It reads single files with ``ast``, infers in each function which names are tensors, and reports what a
capture would meet, in branches that no call takes as well. It is made to be quiet: where it does not know
that a value is a tensor it says nothing. The index of the rules says what it cannot see.

A file is read by a :class:`Reader`, which walks through each function and hands every node to whoever knows
its kind (``expressions``, ``calls``, ``methods``, ``stores``). They get a :class:`Scope`: what is known so
far, and how to evaluate a part and report a finding. They lie above one another and below the reader, so
none of them knows it.
"""

from __future__ import annotations

from .module import scan_text
from .sources import FROM_NOTEBOOK, NOTEBOOK, python_files, scanned
