/* Framework plugins speak of streams, events and device memory for one framework. C11.
 *
 * An op plugin that runs batches on devices is one in small: it publishes an hvd_framework, and the
 * runtime takes submissions for devices only where one is there. */
#pragma once

#include "horovod/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hvd_framework_v1 {
  size_t struct_size;
  /* Records that everything now in `stream` is done; *event is released by is_ready's caller. */
  int (*record_ready)(void* context, int32_t device, void* stream, void** event);
  int (*is_ready)(void* context, void* event); /* 1 or 0; never waits */
  int (*make_stream_wait)(void* context, int32_t device, void* stream, void* event);
  void (*release_event)(void* context, void* event);
  void* (*allocate)(void* context, int32_t device, size_t size);
  void (*release)(void* context, int32_t device, void* memory);
  void* (*current_stream)(void* context, int32_t device);
} hvd_framework_v1;

/* What is published, by hvd_plugin_host.publish under HVD_FRAMEWORK_OF_DEVICES. `release` must be
 * there, for any thread, and work for the rest of the process: outputs outlive their job. It takes
 * what nothing on the device uses any more. The others may be NULL. */
typedef struct hvd_framework {
  const hvd_framework_v1* vtable;
  void* context;
} hvd_framework;
#define HVD_FRAMEWORK_OF_DEVICES "framework-of-devices"

#ifdef __cplusplus
}
#endif
