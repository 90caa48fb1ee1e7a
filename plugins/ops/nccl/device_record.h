// The record that a rank sends to the other members of a process set, with its GPU and its NCCL version. Ranks compare
// the records before NCCL starts: NCCL itself would report less, or hang. Pure.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "ops/nccl/abi.h"

namespace hvd::ops::nccl {

// The record by which the first member of a communicator sends NCCL's unique id, or the error of its
// creation, through the job's store. Pure.
inline std::string id_record(const Status& status, const abi::UniqueId& id) {
  return status.ok() ? "+" + std::string(id.internal, sizeof id.internal) : "-" + status.message();
}

inline Result<abi::UniqueId> parse_id_record(std::string_view record) {
  abi::UniqueId id{};
  if (record.starts_with('-')) return unavailable(printable(record.substr(1), 500));
  if (!record.starts_with('+') || record.size() != 1 + sizeof id.internal) {
    return unavailable("the id of another NCCL is malformed: all ranks need one version");
  }
  std::memcpy(id.internal, record.data() + 1, sizeof id.internal);
  return id;
}

struct DeviceRecord {
  std::string library;  // "NCCL 2.18.5"
  std::string host;     // name of the rank's host
  std::string boot;     // boot id of the host's kernel: two hosts may have the same name
  std::string apart;    // NCCL_HOSTID: for NCCL, ranks with different values are on different hosts
  std::string uuid;     // UUID of the GPU or of the MIG instance, hexadecimal; empty: unknown
  std::string bus;      // PCI address of the GPU; empty: unknown
  std::string device;   // number of the GPU in the rank's process
  std::string trouble;  // why this rank has no usable GPU; empty: it has one

  std::string text() const;
  static DeviceRecord parse(std::string_view text);
};

// Returns, for example, "rank 1 on host b".
std::string rank_on_host(int32_t rank, std::string_view host);

// Returns an error with ranks, host and remedy unless each member has a separate GPU and all members have the
// same version of NCCL. `ranks`: the rank of each record in the job.
Status compare_devices(const std::vector<DeviceRecord>& records, const std::vector<int32_t>& ranks);

}  // namespace hvd::ops::nccl
