"""Callbacks for training with Keras on all ranks."""

from __future__ import annotations

import tensorflow as _tensorflow

from horovod._keras import callbacks as _impl

_keras = _tensorflow.keras
_Callback = _keras.callbacks.Callback


class BroadcastGlobalVariablesCallback(_impl.BroadcastGlobalVariables, _Callback):
    __doc__ = _impl.BroadcastGlobalVariables.__doc__
    _keras = _keras


class MetricAverageCallback(_impl.MetricAverage, _Callback):
    __doc__ = _impl.MetricAverage.__doc__


class LearningRateScheduleCallback(_impl.LearningRateSchedule, _Callback):
    __doc__ = _impl.LearningRateSchedule.__doc__
    _keras = _keras


class LearningRateWarmupCallback(_impl.LearningRateWarmup, _Callback):
    __doc__ = _impl.LearningRateWarmup.__doc__
    _keras = _keras


class BestModelCheckpoint(_impl.BestModel, _keras.callbacks.ModelCheckpoint):
    __doc__ = _impl.BestModel.__doc__
    _keras = _keras
