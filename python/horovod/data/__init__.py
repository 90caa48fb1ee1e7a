"""Data loaders that prepare batches beside the training; without a framework."""

from horovod._version import __version__
from horovod.data.data_loader_base import AsyncDataLoaderMixin, BaseDataLoader

__all__ = ["AsyncDataLoaderMixin", "BaseDataLoader", "__version__"]
