/* The ABI between the runtime (the host) and a plugin, in C11. A plugin needs only the headers of this
 * folder, and does not link against a library of this project.
 *
 * A plugin is a shared object that exports HVD_PLUGIN_ENTRY_SYMBOL: a function without arguments that
 * returns a const hvd_plugin record with static storage. The symbol's name contains the ABI number.
 * Records and vtables grow only at the tail; `struct_size` is the size in the build of the writer.
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

/* The threads that may call the functions of the vtable. */
typedef enum hvd_plugin_threads {
  HVD_THREADS_ANY = 0, /* any number at once */
  HVD_THREADS_ONE = 1  /* any thread, one at a time */
} hvd_plugin_threads;

/* The functions of the host. Any thread may call these functions unless the comment names the
 * threads. The member `host` is the first argument of each. */
typedef struct hvd_plugin_host {
  size_t struct_size;
  void* host;
  /* level: 0 trace, 1 debug, 2 info, 3 warning, 4 error. */
  void (*log)(void* host, int level, const char* message);
  /* Returns the value of a setting by the name of its variable, or NULL if unset. Valid until
   * close. */
  const char* (*setting)(void* host, const char* variable);
  /* The job's key-value store. Both functions return an hvd_status. store_get waits up to timeout_seconds for
   * the key, sets *size (unless `size` is NULL) to the value's size, and copies at most `capacity` bytes. */
  int (*store_set)(void* host, const char* key, const void* value, size_t size);
  int (*store_get)(void* host, const char* key, void* value, size_t capacity, size_t* size,
                   double timeout_seconds);
  /* Queues one call of callback(argument) on the progress thread. */
  void (*post)(void* host, void (*callback)(void* argument), void* argument);
  /* Calls callback(argument) on the progress thread whenever fd is readable, until unwatch. */
  int (*watch)(void* host, int fd, void (*callback)(void* argument), void* argument);
  void (*unwatch)(void* host, int fd);
  /* Allocates memory that the other ranks of this host can map, or returns NULL. */
  void* (*allocate)(void* host, size_t size);
  void (*release)(void* host, void* memory);
  /* Publishes a pointer under a name for the other plugins of this runtime. For example, a controller
   * shares its links with the op plugin of the same library. lookup returns NULL for an unknown
   * name. */
  int (*publish)(void* host, const char* name, void* pointer);
  void* (*lookup)(void* host, const char* name);
  /* Exchanges records between `count` parties through the job's store. Each party publishes one
   * record under its index, 0 to count - 1, and gets the records of the parties in `wanted`, or of
   * all when wanted_count is 0. The call waits for these records, calls on_record once for each, in
   * that order, and returns an hvd_status. The call sends one request for any number of parties. When all
   * parties want all records, a host sends one request for all its ranks. Therefore, for one name, all
   * parties pass wanted_count 0 or none does. Use a name for one exchange only. A party may repeat its
   * call, also for a subset of the parties. */
  int (*store_exchange)(void* host, const char* name, int32_t index, int32_t count,
                        const void* record, size_t size, const int32_t* wanted,
                        int32_t wanted_count, double timeout_seconds,
                        void (*on_record)(void* argument, const void* record, size_t size),
                        void* argument);
} hvd_plugin_host;

/* This rank's place in the job, the argument of hvd_plugin.open. */
typedef struct hvd_plugin_config {
  size_t struct_size;
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  /* 1 if no setting names this op for devices, and trials select it for each process set (hvd_batch.is_trial). */
  int32_t is_tried;
} hvd_plugin_config;

typedef struct hvd_plugin {
  size_t struct_size;
  uint32_t abi;     /* HVD_PLUGIN_ABI */
  uint32_t kind;    /* hvd_plugin_kind */
  const char* name; /* "cpu", "mpi", "nccl": lower case */
  int32_t priority; /* among plugins that can run, the highest is used */
  uint32_t threads; /* hvd_plugin_threads */
  int32_t reserved; /* 0; reserved */
  /* Returns 1 if the plugin works on this machine, else 0 with the reason in `why`. Must not
   * crash, hang or print. NULL (the function): the plugin works everywhere. */
  int (*probe)(char* why, size_t why_size);
  /* Creates *context, the first argument of all later calls. Returns an hvd_status. An op plugin that
   * this job does not use (because its controller is not in use) returns HVD_FAILED_PRECONDITION on all
   * ranks, and the runtime skips the plugin. Any other error fails hvd_init. */
  int (*open)(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
              char* error, size_t error_size);
  void (*close)(void* context);
  /* hvd_bootstrap_v1, hvd_controller_v1, hvd_op_v1 or hvd_framework_v1, by kind. */
  const void* vtable;
} hvd_plugin;

typedef const hvd_plugin* (*hvd_plugin_entry)(void);

/* ---- Bootstrap: the identity of a rank, and an exchange of a few bytes during the start -------- */

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
  /* Reads a value that rank 0 has put, after a fence. Sets *size, and copies at most `capacity` bytes. */
  int (*get)(void* context, const char* key, void* value, size_t capacity, size_t* size,
             double timeout_seconds, char* error, size_t error_size);
  /* Returns when every rank of the job has called fence, and all values of the ranks are readable. */
  int (*fence)(void* context, double timeout_seconds, char* error, size_t error_size);
  /* Reads the job's secret, equal on all ranks. *size is the capacity, and becomes the size of the
   * secret. NULL if the bootstrap has no secret: rank 0 then generates one and puts it. */
  int (*secret)(void* context, void* secret, size_t* size, char* error, size_t error_size);
  /* Like get, for a value that `rank` has put or will put, without a fence. This function allows
   * some ranks of the job to start without the others. NULL: all ranks must start. */
  int (*get_from)(void* context, int32_t rank, const char* key, void* value, size_t capacity,
                  size_t* size, double timeout_seconds, char* error, size_t error_size);
} hvd_bootstrap_v1;

#ifdef __cplusplus
}
#endif
