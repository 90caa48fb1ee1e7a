// The functions of libccl, opened at run time. Immutable once made. What they throw is a
// std::exception.
#pragma once

#include <string>

#include "base/result.h"
#include "horovod/plugin.h"
#include "ops/ccl/abi.h"

namespace hvd::ops::ccl {

// A function that takes the library's defaults as its attribute.
template <typename Function>
struct Call {
  Function* function = nullptr;
  const abi::Attribute* defaults = nullptr;
};

struct Api {
  std::string library;  // path or name
  std::string title;    // "oneCCL 2021.16.2"

  abi::GetVersion* get_version;
  abi::DestroyCommunicator* destroy_communicator;
  abi::TestEvent* test_event;
  abi::DestroyEvent* destroy_event;
  Call<abi::Init> init;
  Call<abi::CreateCommunicator> create_communicator;
  Call<abi::AllReduce> all_reduce;
  Call<abi::ReduceScatter> reduce_scatter;
  Call<abi::AllGather> all_gather;
  Call<abi::Broadcast> broadcast;
  Call<abi::AllToAll> all_to_all;
};

// The library that this process uses already, the one that HOROVOD_CCL_LIBRARY names, or the usual
// one. Not ok, with what would help, where it, or the libfabric that it goes over, cannot be had.
Result<Api> open_api();

// Starts the library, with what it should know of this rank in its variables; those that are set
// already stay. Once per process does anything.
Status start(const Api& api, const hvd_plugin_host& host, const hvd_plugin_config& config);

// Whether threads of the library's own advance what was started, whatever became of its memory.
bool works_by_itself();

}  // namespace hvd::ops::ccl
