"""The way of a traced call through the tree, and the tape of what it captures."""

from .cursor import Cursor, Mode, Stop
from .follower import Follower
from .handed import HandedNumbers, given_numbers, may_be_handed
from .host_reads import HostReads
from .tape import RestartError, SegmentTape, kept_call
from .unseen import UnseenValue
from .unwritten import Unwritten
from .writes import CHANGED, Writes
