#include "ops/ccl/store.h"

#include <stdexcept>

namespace hvd::ops::ccl {
namespace {

// How long one question may wait: oneCCL asks for what it does not expect too.
constexpr double kSlice = 0.05;
constexpr size_t kRecord = 4096;

}  // namespace

std::vector<char> CclStore::get(const abi::String& key) {
  if (done_.load()) return {};
  const std::string name = name_of(key);
  if (is_alone_) return own_[name];
  std::vector<char> value(kRecord);
  for (;;) {
    if (closed_.load()) throw std::runtime_error("the process set was closed");
    size_t size = 0;
    const int code =
        host_.store_get(host_.host, name.c_str(), value.data(), value.size(), &size, kSlice);
    if (code == HVD_OK && size > value.size()) {
      value.resize(size);
      continue;
    }
    if (code != HVD_OK && code != HVD_DEADLINE_EXCEEDED && code != HVD_NOT_FOUND) {
      throw std::runtime_error("the job's store cannot be reached");
    }
    if (code != HVD_OK && deadline_.passed()) {
      throw std::runtime_error(
          "not all members of a process set have come in time "
          "(HOROVOD_START_TIMEOUT)");
    }
    value.resize(code == HVD_OK ? size : 0);
    return value;
  }
}

void CclStore::set(const abi::String& key, const std::vector<char>& data) {
  if (done_.load()) return;
  if (closed_.load()) throw std::runtime_error("the process set was closed");
  if (is_alone_) {
    own_[name_of(key)] = data;
    return;
  }
  if (host_.store_set(host_.host, name_of(key).c_str(), data.data(), data.size()) != HVD_OK) {
    throw std::runtime_error("the job's store cannot be reached");
  }
}

}  // namespace hvd::ops::ccl
