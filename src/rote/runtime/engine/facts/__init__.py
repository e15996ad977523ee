"""What the keys of earlier processes have found, as data, and the store that keeps it."""

from .earlier import EarlierFacts, changing_leaves
from .fact_store import FactStore, RanCode
from .facts import KeyFacts, ReasonFacts, StateFacts, VerdictFacts
from .texts import KeyName
