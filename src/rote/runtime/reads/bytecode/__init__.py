"""The bytecode of functions, with notes put in before what may read or write."""

from .entries import CALLS, GIVES_ITEM, HANDS_ON, ITERATES, LOOKS, OPERATES, entry_of, spreads
from .instrument import Around
from .prologue import MODULE_CALL, Answering
from .swaps import Swaps, copied
