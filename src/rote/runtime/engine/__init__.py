"""The life of a key: what is observed, when something is recorded, and which recording answers."""

from .answer import Answer
from .choice import drop_abandoned
from .facts import KeyFacts, KeyName, RanCode, changing_leaves
from .guard_reasons import strict_reasons
from .ledger import FREE_TRACES, Ledger, Mark, Means, Pace
from .other_lengths import OtherLengths
from .plain_path import PlainPath
from .specialization import Specialization
from .states import LifeEvent, State
from .steadiness import NEXT
from .subject import Limits, Subject
from .umpire import WARMING, Timed, Umpire
