/* The ABI for streams, events and device memory of a framework, in C11.
 *
 * An op plugin that runs batches on devices publishes an hvd_framework. The runtime accepts
 * submissions on devices only if a plugin has published an hvd_framework. */
#pragma once

#include "horovod/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hvd_framework_v1 {
  size_t struct_size;
  /* Records an event after the current work of `stream`. The caller of is_ready releases *event. */
  int (*record_ready)(void* context, int32_t device, void* stream, void** event);
  int (*is_ready)(void* context, void* event); /* returns 1 or 0; never waits */
  /* `stream` is a stream of `device`, the current device. Returns an hvd_status. */
  int (*make_stream_wait)(void* context, int32_t device, void* stream, void* event);
  void (*release_event)(void* context, void* event);
  void* (*allocate)(void* context, int32_t device, size_t size);
  void (*release)(void* context, int32_t device, void* memory);
  void* (*current_stream)(void* context, int32_t device);
} hvd_framework_v1;

/* A plugin publishes this record with hvd_plugin_host.publish under HVD_FRAMEWORK_OF_DEVICES.
 * `release` is required. Any thread may call `release` until the process ends, because outputs may outlive
 * their job. The caller of `release` makes sure that the device has finished all work on the memory. The other
 * functions may be NULL, except for make_stream_wait if the op calls hvd_batch.on_stream. */
typedef struct hvd_framework {
  const hvd_framework_v1* vtable;
  void* context;
} hvd_framework;
#define HVD_FRAMEWORK_OF_DEVICES "framework-of-devices"

#ifdef __cplusplus
}
#endif
