"""The way of a traced call through the tree, and the tape of what it captures."""

from .built import BuiltArray, BuiltNumbers, built_of
from .cursor import Cursor, Mode, Stop
from .derivatives import NumbersOfNodes
from .follower import Follower
from .handed import HandedNumbers, factors_in, given_numbers, in_list, may_be_handed
from .host_reads import HostReads, ReadArray, ReadList
from .resized import GIVES_MEMORY, ResizedStorages
from .sharded import ShardedTensors
from .tape import RestartError, SegmentTape, kept_call
from .transfers import Steps, Transfers
from .unseen import UnseenValue
from .writes import CHANGED, Writes
