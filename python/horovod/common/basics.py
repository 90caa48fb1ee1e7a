"""HorovodBasics, under the name that scripts import."""

from horovod._basics_object import HorovodBasics

__all__ = ["HorovodBasics"]
