"""Collectives on MXNet's arrays, under the name that scripts import; no MPI is needed."""

from horovod import _basics as _basics, _common
from horovod._basics import *
from horovod._common import *
from horovod.common.util import (
    check_installed_version as check_installed_version,
    get_average_backwards_compatibility_fun,
    get_ext_suffix as get_ext_suffix,
    get_extension_full_path as get_extension_full_path,
)
from horovod.mxnet import _collectives
from horovod.mxnet._collectives import *

__all__ = _common.__all__ + _collectives.__all__

handle_average_backwards_compatibility = get_average_backwards_compatibility_fun(_basics)
