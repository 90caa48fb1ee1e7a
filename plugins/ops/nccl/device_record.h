// The record by which a rank tells the other members of a process set which GPU and which NCCL it has, and the
// comparison of these records before NCCL starts: NCCL would report less, or wait forever. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::ops::nccl {

struct DeviceRecord {
  std::string library;  // "NCCL 2.18.5"
  std::string host;     // its name
  std::string boot;     // of its running kernel: two hosts may have one name
  std::string apart;    // NCCL_HOSTID: for NCCL, ranks with different values are on different hosts
  std::string uuid;     // of the GPU or of the MIG instance, hexadecimal; empty: unknown
  std::string bus;      // PCI address of the GPU; empty: unknown
  std::string device;   // its number in the rank's process
  std::string trouble;  // why this rank has no such GPU; empty: it has one

  std::string text() const;
  static DeviceRecord parse(std::string_view text);
};

// "rank 1 on host b"
std::string rank_on_host(int32_t rank, std::string_view host);

// Returns an error that names ranks, host and remedy unless each member has a GPU of its own, and all have one
// version of NCCL. ranks: of the job, one for each record.
Status compare_devices(const std::vector<DeviceRecord>& records, const std::vector<int32_t>& ranks);

}  // namespace hvd::ops::nccl
