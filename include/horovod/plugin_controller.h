/* Controller plugins carry opaque messages between ranks. C11. */
#pragma once

#include "horovod/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hvd_controller_v1 {
  size_t struct_size;
  /* Queues a message to a rank; copies it; never waits. Messages of one pair arrive in order,
   * once, whole. */
  int (*send)(void* context, int32_t rank, const void* message, size_t size);
  /* Moves bytes and calls on_message for each arrival, on the calling thread. Never waits.
   * *progressed becomes 1 when anything moved. An error names the rank that is lost. */
  int (*poll)(void* context,
              void (*on_message)(void* argument, int32_t rank, const void* message, size_t size),
              void* argument, int32_t* progressed, char* error, size_t error_size);
  /* Fails every link, so that no peer waits for this rank. */
  void (*abort)(void* context, const char* cause);
  /* The machine of each rank: size entries, numbered from 0 in the order of their lowest rank.
   * Proven, not believed from names. Valid until close. */
  const int32_t* (*hosts)(void* context);
  /* Called before the progress thread blocks on the watched descriptors. 1: it may sleep, and
   * anything that arrives from now on makes a watched descriptor readable. 0: poll first. */
  int (*before_sleep)(void* context);
  void (*after_sleep)(void* context);
  /* As send, of two parts that arrive as one message. NULL: they are put together before. */
  int (*send_parts)(void* context, int32_t rank, const void* first, size_t first_size,
                    const void* second, size_t second_size);
} hvd_controller_v1;

#ifdef __cplusplus
}
#endif
