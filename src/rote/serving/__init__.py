"""A policy behind a websocket, for the clients of openpi: ``rote serve``. What it needs is loaded later."""

from .access import is_local
from .arrays import MessageError, WireLimits
from .options import ServeOptions
from .policy import Served, served
from .reading import decode
from .server import PolicyServer, Stopped
from .writing import encode
