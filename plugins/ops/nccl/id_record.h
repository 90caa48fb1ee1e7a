// The record by which the first member of a communicator sends NCCL's unique id, or the error of its
// creation, through the job's store. Pure.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/text.h"
#include "ops/nccl/abi.h"

namespace hvd::ops::nccl {

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

}  // namespace hvd::ops::nccl
