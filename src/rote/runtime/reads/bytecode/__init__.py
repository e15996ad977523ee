"""The bytecode of functions, with notes put in before what may read or write."""

from .instrument import Around
from .prologue import MODULE_CALL, Answering
from .swaps import Swaps, Tracking, copied
