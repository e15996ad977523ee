"""A policy behind a websocket, for the clients of openpi: ``rote serve``. What it needs is loaded later."""

from .arrays import WireLimits
from .options import ServeOptions
from .policy import Served, served
from .reading import decode
from .server import PolicyServer, Stopped
from .writing import encode
