"""A Keras training script as users write it with Horovod: all callbacks, and saved and loaded models.

keras_script.py tensorflow.keras | keras    h5 | keras    the module of Horovod, the format of files
"""

import os
import sys
import tempfile

import numpy as np

if sys.argv[1] == "keras":
    import keras

    import horovod.keras as hvd
else:
    from tensorflow import keras

    import horovod.tensorflow.keras as hvd

hvd.init()

np.random.seed(hvd.rank())
x_train = np.random.normal(size=(64, 8)).astype("float32")
y_train = (x_train.sum(axis=1) > 0).astype("int64")

model = keras.Sequential(
    [
        keras.layers.Dense(8, activation="relu", input_shape=(8,)),
        keras.layers.Dropout(0.1),
        keras.layers.Dense(2, activation="softmax"),
    ]
)
opt = keras.optimizers.SGD(0.01 * hvd.size(), momentum=0.9)
opt = hvd.DistributedOptimizer(opt, backward_passes_per_step=1, compression=hvd.Compression.fp16)
model.compile(
    loss="sparse_categorical_crossentropy", optimizer=opt, metrics=["accuracy"], experimental_run_tf_function=False
)

scratch = tempfile.TemporaryDirectory() if hvd.rank() == 0 else None  # removed when rank 0 ends
folder = hvd.broadcast_object(scratch and scratch.name, root_rank=0)
best = hvd.callbacks.BestModelCheckpoint(monitor="loss", mode="min", save_freq="epoch")
best.filepath = os.path.join(folder, "best.keras")
callbacks = [
    hvd.callbacks.BroadcastGlobalVariablesCallback(0),
    hvd.callbacks.MetricAverageCallback(),
    hvd.callbacks.LearningRateWarmupCallback(initial_lr=0.01 * hvd.size(), warmup_epochs=1, verbose=1),
    hvd.callbacks.LearningRateScheduleCallback(
        initial_lr=0.01 * hvd.size(), multiplier=1.0, start_epoch=1, end_epoch=2
    ),
    hvd.callbacks.LearningRateScheduleCallback(initial_lr=0.01 * hvd.size(), multiplier=1e-1, start_epoch=2),
    keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=10, verbose=1),
    best,
]
if hvd.rank() == 0:
    callbacks.append(keras.callbacks.ModelCheckpoint(os.path.join(folder, "checkpoint-{epoch}." + sys.argv[2])))
history = model.fit(x_train, y_train, batch_size=16, callbacks=callbacks, epochs=3, verbose=0).history

resume_from_epoch = 0
for try_epoch in range(3, 0, -1):
    if os.path.exists(os.path.join(folder, f"checkpoint-{try_epoch}.{sys.argv[2]}")):
        resume_from_epoch = try_epoch
        break
resume_from_epoch = hvd.broadcast_object(resume_from_epoch, 0, name="resume_from_epoch")
model = hvd.load_model(
    os.path.join(folder, f"checkpoint-{resume_from_epoch}.{sys.argv[2]}"), compression=hvd.Compression.fp16
)
state = hvd.elastic.KerasState(model, batch=0, epoch=resume_from_epoch)


@hvd.elastic.run
def train(state):
    state.model.fit(
        x_train,
        y_train,
        batch_size=16,
        epochs=5 - state.epoch,
        verbose=0,
        callbacks=[
            hvd.elastic.UpdateBatchStateCallback(state),
            hvd.elastic.UpdateEpochStateCallback(state),
            hvd.elastic.CommitStateCallback(state, batches_per_commit=2),
        ],
    )


train(state)

# Checks.
assert resume_from_epoch == 3, resume_from_epoch
assert (state.epoch, state.batch) == (5, 0), (state.epoch, state.batch)
assert type(model.optimizer).__name__ == "SGD"
assert "horovod._keras" in str(model.optimizer), model.optimizer
assert int(np.asarray(model.optimizer.iterations)) == 5 * 4, model.optimizer.iterations
loaded = keras.models.load_model(best.filepath)
assert "horovod" not in str(loaded.optimizer), loaded.optimizer
np.testing.assert_allclose(history["lr"][-2:], [0.01 * hvd.size(), 0.001 * hvd.size()], rtol=1e-5)
for name in ("loss", "accuracy"):
    assert len({tuple(each) for each in hvd.allgather_object(history[name])}) == 1, history
for number, weight in enumerate(model.get_weights()):
    for other in hvd.allgather_object(weight, name=f"weight.{number}"):
        np.testing.assert_array_equal(other, weight)
