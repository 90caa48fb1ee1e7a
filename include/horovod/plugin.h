/* How a plugin presents itself. C11; a plugin needs only this folder and links against nothing.
 *
 * A plugin is a shared object that exports HVD_PLUGIN_ENTRY_SYMBOL, a function that takes nothing
 * and returns a const hvd_plugin record with static storage. The symbol's name carries the ABI
 * number. Records and vtables grow at the tail only; `struct_size` says how far one reaches.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "horovod/types.h"

#ifdef __cplusplus
extern "C" {
#endif

#define HVD_PLUGIN_ABI 1
#define HVD_PLUGIN_ENTRY_SYMBOL "hvd_plugin_entry_v1"

typedef enum hvd_plugin_kind {
  HVD_PLUGIN_BOOTSTRAP = 1,
  HVD_PLUGIN_CONTROLLER = 2,
  HVD_PLUGIN_OP = 3,
  HVD_PLUGIN_FRAMEWORK = 4
} hvd_plugin_kind;

/* Which threads may call the vtable. */
typedef enum hvd_plugin_threads {
  HVD_THREADS_ANY = 0, /* any number at once */
  HVD_THREADS_ONE = 1  /* any thread, one at a time */
} hvd_plugin_threads;

/* What the host offers. Every function may be called from any thread unless it says otherwise.
 * `host` is the first argument of each. */
typedef struct hvd_plugin_host {
  size_t struct_size;
  void* host;
  /* level: 0 trace, 1 debug, 2 info, 3 warning, 4 error. */
  void (*log)(void* host, int level, const char* message);
  /* The value of a setting by its variable's name, or NULL when unset; valid until close. */
  const char* (*setting)(void* host, const char* variable);
  /* The job's store. Return an hvd_status. get fills *size (unless it is NULL) with the value's size
   * and copies at most `capacity` bytes; it waits for the key up to timeout_seconds. */
  int (*store_set)(void* host, const char* key, const void* value, size_t size);
  int (*store_get)(void* host, const char* key, void* value, size_t capacity, size_t* size,
                   double timeout_seconds);
  /* Runs callback(argument) on the thread that makes progress, soon. */
  void (*post)(void* host, void (*callback)(void* argument), void* argument);
  /* Calls callback(argument) on the progress thread whenever fd is readable, until unwatch. */
  int (*watch)(void* host, int fd, void (*callback)(void* argument), void* argument);
  void (*unwatch)(void* host, int fd);
  /* Memory that the other ranks of this host can reach, or NULL. */
  void* (*allocate)(void* host, size_t size);
  void (*release)(void* host, void* memory);
  /* A pointer under a name, among the plugins of one runtime: how a controller and an op that
   * come from one hand share their links. lookup gives NULL when there is none. */
  int (*publish)(void* host, const char* name, void* pointer);
  void* (*lookup)(void* host, const char* name);
  /* Each of `count` parties leaves one record under its index, 0 to count - 1, and takes those of
   * the parties in `wanted`, or of all when wanted_count is 0: on_record is called once for each,
   * in that order, before the call returns. One request, whatever the number of parties, and one
   * for a whole host where all ranks of the job ask for all: so of one name either all parties
   * leave wanted_count 0, or none. A name is good for one round, in which a party may ask again,
   * then also for some alone. Returns an hvd_status. */
  int (*store_exchange)(void* host, const char* name, int32_t index, int32_t count,
                        const void* record, size_t size, const int32_t* wanted,
                        int32_t wanted_count, double timeout_seconds,
                        void (*on_record)(void* argument, const void* record, size_t size),
                        void* argument);
} hvd_plugin_host;

/* What open is told. */
typedef struct hvd_plugin_config {
  size_t struct_size;
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
} hvd_plugin_config;

typedef struct hvd_plugin {
  size_t struct_size;
  uint32_t abi;     /* HVD_PLUGIN_ABI */
  uint32_t kind;    /* hvd_plugin_kind */
  const char* name; /* "cpu", "mpi", "nccl": lower case */
  int32_t priority; /* the higher one wins among those that can */
  uint32_t threads; /* hvd_plugin_threads */
  int32_t reserved; /* 0; nothing reads it */
  /* 1 when it works here; 0 when not, with the reason in `why`. Must not crash, hang or print.
   * NULL: it works everywhere. */
  int (*probe)(char* why, size_t why_size);
  /* Makes *context, passed to every call after; returns an hvd_status. An op that has no part in
   * this job (its controller is not in use), on all ranks alike, returns HVD_FAILED_PRECONDITION
   * and is left out; any other failure ends hvd_init. */
  int (*open)(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
              char* error, size_t error_size);
  void (*close)(void* context);
  /* hvd_bootstrap_v1, hvd_controller_v1, hvd_op_v1 or hvd_framework_v1, by kind. */
  const void* vtable;
} hvd_plugin;

typedef const hvd_plugin* (*hvd_plugin_entry)(void);

/* ---- Bootstrap: who am I, and an exchange of a few bytes. Never called per step. ------------- */

typedef struct hvd_identity {
  size_t struct_size;
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  int32_t generation;
  char host[256];
} hvd_identity;

typedef struct hvd_bootstrap_v1 {
  size_t struct_size;
  int (*identity)(void* context, hvd_identity* identity, char* error, size_t error_size);
  int (*put)(void* context, const char* key, const void* value, size_t size, char* error,
             size_t error_size);
  /* What rank 0 has put, after a fence. Fills *size, and copies at most `capacity` bytes. */
  int (*get)(void* context, const char* key, void* value, size_t capacity, size_t* size,
             double timeout_seconds, char* error, size_t error_size);
  /* Returns when every rank of the job has called it and all their puts can be got. */
  int (*fence)(void* context, double timeout_seconds, char* error, size_t error_size);
  /* The job's secret, the same on all ranks; *size in: capacity, out: bytes. NULL where there is
   * none: then rank 0 makes one, and puts it. */
  int (*secret)(void* context, void* secret, size_t* size, char* error, size_t error_size);
} hvd_bootstrap_v1;

#ifdef __cplusplus
}
#endif
