"""`LocalGradientAggregationHelperEager`, under the name that scripts import it from."""

from horovod.tensorflow.gradient_aggregation import (
    LocalGradientAggregationHelperEager,
    apply_op_to_not_none_tensors,
    get_not_none_from_list,
)

__all__ = ["LocalGradientAggregationHelperEager", "apply_op_to_not_none_tensors", "get_not_none_from_list"]
