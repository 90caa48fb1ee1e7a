"""`LocalGradientAggregationHelperEager`, under the name that scripts import it from."""

from horovod.tensorflow.gradient_aggregation import LocalGradientAggregationHelperEager

__all__ = ["LocalGradientAggregationHelperEager"]
