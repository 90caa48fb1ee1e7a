// The libhorovod that Python has opened, and the counters of unnamed calls.
#pragma once

#include <string>

#include "horovod/horovod.h"

namespace hvd::tensorflow {

struct Library {
  decltype(&::hvd_submit) submit;
  decltype(&::hvd_wait) wait;
  decltype(&::hvd_poll) poll;
  decltype(&::hvd_get_output) get_output;
  decltype(&::hvd_release) release;
  // HorovodNumber's `what`: 0 rank, 1 local rank, 2 size, 3 local size, 4 included.
  decltype(&::hvd_rank) rank;
  decltype(&::hvd_local_rank) local_rank;
  decltype(&::hvd_process_set_size) size;
  decltype(&::hvd_local_size) local_size;
  decltype(&::hvd_process_set_included) included;
};

// Returns NULL until Python has set the library.
const Library* library();

// Returns `noname.<n>`: equal on all ranks of a process set that run their unnamed calls in the same order.
std::string next_name(const char* prefix, int32_t process_set);

constexpr size_t kErrorSize = 4096;

}  // namespace hvd::tensorflow
