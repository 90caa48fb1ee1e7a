"""Data loaders that prepare batches while the training runs; without a framework."""

from horovod._version import __version__
from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader", "__version__"]
