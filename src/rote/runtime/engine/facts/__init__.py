"""What the keys of earlier processes have found, as data, and the store that keeps it."""

from .earlier import EarlierFacts, FactStore, RanCode, changing_leaves
from .facts import KeyFacts
from .texts import KeyName
