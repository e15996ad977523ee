"""What a command is about: a callable with its arguments, or a model with its batches."""

from .batches import batches_of, model_of, run
from .target import Arg, CommandTarget, Target, built, calling, check_arguments, load
