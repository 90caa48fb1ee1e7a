"""Sample weights for `fit` of Keras if the ranks have different weights (docs/unequal-work.md)."""

import numpy

import horovod.keras as hvd


def shares(weights, batch_size):
    """Returns weights for `fit(..., sample_weight=shares, batch_size=batch_size, shuffle=False)` of a model whose loss
    has reduction="sum". All ranks have the same number of batches."""
    batches = [weights[begin : begin + batch_size] for begin in range(0, len(weights), batch_size)]
    return numpy.concatenate([batch * hvd.size() / (hvd.total(batch.sum()) or 1) for batch in batches])
