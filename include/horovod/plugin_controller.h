/* The ABI of a controller plugin, in C11. A controller carries opaque messages between ranks. The
 * runtime calls the plugin on the progress thread. */
#pragma once

#include "horovod/plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct hvd_controller_v1 {
  size_t struct_size;
  /* Copies a message and queues it for a rank. Never waits. Messages from one rank to another arrive
   * complete, once and in order. */
  int (*send)(void* context, int32_t rank, const void* message, size_t size);
  /* Sends and receives bytes, and calls on_message for each received message on the calling
   * thread. Never waits. Sets *progressed to 1 if it sent or received any byte. */
  int (*poll)(void* context,
              void (*on_message)(void* argument, int32_t rank, const void* message, size_t size),
              void* argument, int32_t* progressed, char* error, size_t error_size);
  /* Fails every link, so that no peer waits for this rank. */
  void (*abort)(void* context, const char* cause);
  /* Returns the machine of each rank: one entry per rank. Machines are numbered from 0 in the
   * order of their lowest ranks, and detected by a test, not by host names. Valid until close. */
  const int32_t* (*hosts)(void* context);
  /* The progress thread calls before_sleep before it blocks on the watched descriptors. Returns 1 if the thread
   * may sleep: any later arrival makes a watched descriptor readable. Returns 0 if the thread must poll first. */
  int (*before_sleep)(void* context);
  void (*after_sleep)(void* context);
  /* Like send, for two parts that arrive as one message. NULL: the runtime joins the parts and calls
   * send. */
  int (*send_parts)(void* context, int32_t rank, const void* first, size_t first_size,
                    const void* second, size_t second_size);
  /* Returns the rank whose loss made poll fail; -1 if poll failed for another reason, or has not
   * failed. NULL (the function): -1. */
  int32_t (*lost_rank)(void* context);
  /* Like abort, for the loss of a rank. Afterwards the function lost_rank returns this rank on every
   * rank. NULL: the runtime calls abort. */
  void (*abort_lost)(void* context, const char* cause, int32_t lost_rank);
} hvd_controller_v1;

#ifdef __cplusplus
}
#endif
