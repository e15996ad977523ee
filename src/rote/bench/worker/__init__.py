"""The process of a benchmark that runs one contender."""

from .contenders import EAGER, PEERS, Contender
from .results import together
from .worker import Worker, Workload, serve
