"""The devices that segments are captured on, behind one protocol."""

from .select import PROCESS
