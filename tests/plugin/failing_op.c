/* An op whose library fails in every batch, and then still uses the tensors. */
#include <stddef.h>

#include "horovod/plugin_op.h"

static int32_t supports(void* op, const hvd_batch* batch) {
  (void)op;
  return batch->device == HVD_CPU ? 200 : 0;
}
static int run(void* op, const hvd_batch* batch, hvd_batch_done done, void* argument) {
  (void)op;
  done(argument, HVD_ABORTED | (batch->keeps_tensors != 0 ? HVD_TENSORS_IN_USE : 0),
       batch->keeps_tensors != 0 ? "the library uses tensors" : "the library uses copies");
  return HVD_OK;
}
static int poll_none(void* op, int32_t* progressed) {
  (void)op, (void)progressed;
  return HVD_OK;
}
static void abort_none(void* op, const char* cause) { (void)op, (void)cause; }
static int open_op(const hvd_plugin_host* host, const hvd_plugin_config* config, void** op,
                   char* error, size_t error_size) {
  (void)host, (void)config, (void)error, (void)error_size;
  *op = NULL;
  return HVD_OK;
}
static void close_op(void* op) { (void)op; }
static const hvd_op_v1 kOp = {.struct_size = sizeof kOp,
                              .supports = supports,
                              .run = run,
                              .poll = poll_none,
                              .abort = abort_none};
static const hvd_plugin kPlugin = {
    sizeof kPlugin,  HVD_PLUGIN_ABI,  HVD_PLUGIN_OP,     "failing",     10,
    HVD_THREADS_ONE, .open = open_op, .close = close_op, .vtable = &kOp};
__attribute__((visibility("default"))) const hvd_plugin* hvd_plugin_entry_v1(void) {
  return &kPlugin;
}
