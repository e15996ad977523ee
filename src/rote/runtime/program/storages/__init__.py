"""The storages of a call: where each came from, and what the tensors on it look like."""

from .looks import Look, Looks
from .rebound import Homes, ReboundTensors, are_alone
from .table import EXTERNAL, INPUT, NEW, Origin, StorageTable, Token, UnsupportedTensorError
from .unwritten import Unwritten
