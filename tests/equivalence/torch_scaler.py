"""GradScaler for CPUs. Before PyTorch 2.3, GradScaler needs a GPU: here its two kernels run in Python."""

import torch

IS_OF_TORCH = hasattr(getattr(torch, "amp", None), "GradScaler")


class _OneDevice:
    """Replaces the copies for each GPU."""

    def __init__(self, tensor):
        self._tensor, self._per_device_tensors = tensor, {}

    def get(self, device):
        return self._per_device_tensors.setdefault(device, self._tensor)


def _unscale(grads, found, inverse):
    for grad in grads:
        grad.data.mul_(inverse.to(grad.dtype))  # GradScaler's kernel does not change the version either
        if not torch.isfinite(grad).all():
            found.fill_(1.0)


def _update(scale, tracker, found, growth, backoff, interval):
    if found.item():
        scale.mul_(backoff)
        tracker.zero_()
    elif tracker.add_(1).item() == interval:
        scale.mul_(growth)
        tracker.zero_()


def _make_class():
    from torch.cuda.amp import grad_scaler

    grad_scaler.amp_definitely_not_available = lambda: False
    grad_scaler._MultiDeviceReplicator = _OneDevice
    torch._amp_foreach_non_finite_check_and_unscale_ = _unscale
    torch._amp_update_scale_ = _update

    class GradScaler(grad_scaler.GradScaler):
        def scale(self, outputs):
            if self._scale is None:
                self._lazy_init_scale_growth_tracker(outputs.device)
            return outputs * self._scale.to(outputs.dtype)

    return GradScaler


_Class = None if IS_OF_TORCH else _make_class()


def scaler(**keywords):
    """Returns a GradScaler that changes its scale soon."""
    keywords.update(init_scale=1024.0, growth_interval=2)
    return torch.amp.GradScaler("cpu", **keywords) if IS_OF_TORCH else _Class(**keywords)
