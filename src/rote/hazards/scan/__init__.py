"""The source scan: finds hazards in a program without running or importing it.

It reads single files with ``ast``, infers in each function which names are tensors, and reports what a
capture would meet, also in branches that no call takes. It is quiet by design: where it does not know that a
value is a tensor, it says nothing. The index of the rules says what it cannot see.

A :class:`Reader` walks through each function and hands every node to the module that knows its kind
(``expressions``, ``calls``, ``methods``, ``stores``), with a :class:`Scope`: what is known so far, and how to
evaluate a part and report a finding. These modules build on one another, and the reader on them.
"""

from .module import scan_text
from .sources import FROM_NOTEBOOK, NOTEBOOK, python_files, scanned
from .syntax import self_attribute
