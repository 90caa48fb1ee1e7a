// The functions of libccl, which open_api loads at run time. The functions throw std::exception. Immutable once made;
// any thread.
#pragma once

#include <string>

#include "base/result.h"
#include "base/shared_library.h"
#include "horovod/plugin.h"
#include "ops/ccl/abi.h"

namespace hvd::ops::ccl {

template <typename Function>
struct CallWithDefaults {
  Function* function = nullptr;
  const abi::Attribute* defaults = nullptr;
};

struct CclApi {
  SymbolFinder find;
  std::string library = find.library().path();  // path or name
  std::string title = {};                       // "oneCCL 2021.16.2"

  abi::GetVersion* get_version = find(abi::kGetVersion);
  abi::DestroyCommunicator* destroy_communicator = find(abi::kDestroyCommunicator);
  abi::TestEvent* test_event = find(abi::kTestEvent);
  abi::DestroyEvent* destroy_event = find(abi::kDestroyEvent);
  CallWithDefaults<abi::Init> init = {find(abi::kInit), find(abi::kInitDefault)};
  CallWithDefaults<abi::CreateCommunicator> create_communicator = {find(abi::kCreateCommunicator),
                                                                   find(abi::kCommunicatorDefault)};
  CallWithDefaults<abi::AllReduce> all_reduce = {find(abi::kAllReduce),
                                                 find(abi::kAllReduceDefault)};
  CallWithDefaults<abi::ReduceScatter> reduce_scatter = {find(abi::kReduceScatter),
                                                         find(abi::kReduceScatterDefault)};
  CallWithDefaults<abi::AllGather> all_gather = {find(abi::kAllGather),
                                                 find(abi::kAllGatherDefault)};
  CallWithDefaults<abi::Broadcast> broadcast = {find(abi::kBroadcast),
                                                find(abi::kBroadcastDefault)};
  CallWithDefaults<abi::AllToAll> all_to_all = {find(abi::kAllToAll), find(abi::kAllToAllDefault)};
};

// Opens the library in HOROVOD_CCL_LIBRARY, else the one that this process has already loaded, else a usual one. If the
// library or its libfabric is missing, returns an error with the remedy.
Result<CclApi> open_api();

// Sets the library's environment variables for this rank, except those already set, and starts the
// library. Only the first call in a process has an effect.
Status start(const CclApi& api, const hvd_plugin_host& host, const hvd_plugin_config& config);

// Returns whether the library has its own threads, which continue a batch after the job has abandoned it and freed its
// memory.
bool works_by_itself();

}  // namespace hvd::ops::ccl
