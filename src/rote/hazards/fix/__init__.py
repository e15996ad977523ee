"""Fixes for findings that certainly keep what the program computes.

- a tensor made from Python numbers becomes ``torch.full``, ``torch.arange`` or a stack of those (RT124)
- a factory whose result is moved to a device gets ``device=`` (RT121)
- a scale that ``forward`` stores on ``self`` becomes a registered buffer, updated in place (RT212)
- a sum over a mask becomes a sum over ``torch.where`` (RT111; sums of floats may round otherwise)

A fix is made only where the source shows all that it depends on. Formatting and comments stay. Only
:func:`write` writes. Needs ``libcst``: ``pip install 'rote[fix]'``.

:func:`fix` takes its places from the source scan, :func:`fix_found` from a trial run, which knows which of
them really are hazards. Both make the same changes under the same conditions.
"""

from .fixes import Fix, fix, fix_found, fix_text, write
