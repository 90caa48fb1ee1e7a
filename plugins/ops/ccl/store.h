// Implements oneCCL's key-value store over the job's store. Each communicator of two or more ranks owns
// one; oneCCL calls it. Any thread may close it.
#pragma once

#include <atomic>
#include <map>
#include <string>

#include "base/clock.h"
#include "horovod/plugin.h"
#include "ops/ccl/abi.h"

namespace hvd::ops::ccl {

class CclStore : public abi::KvsInterface {
 public:
  // `prefix` of its keys: the same on all members, and of no other communicator.
  CclStore(const hvd_plugin_host& host, std::string prefix, bool is_alone, int id, double seconds)
      : host_(host),
        prefix_(std::move(prefix)),
        is_alone_(is_alone),
        id_(id),
        deadline_(Deadline::after_seconds(seconds)) {}

  // Both throw once the store is closed, get also when not all members have come in time.
  std::vector<char> get(const abi::String& key) override;
  void set(const abi::String& key, const std::vector<char>& data) override;
  int get_id() override { return id_; }

  // The members have found each other: what they still want to take away may stay.
  void leave_as_is() { done_.store(true); }
  void close() { closed_.store(true); }

 private:
  std::string name_of(const abi::String& key) const {
    return prefix_ + std::string(key.text, key.length);
  }
  const hvd_plugin_host& host_;
  const std::string prefix_;
  const bool is_alone_;
  const int id_;
  const Deadline deadline_;
  // Values that a rank which is alone has set; it needs no store.
  std::map<std::string, std::vector<char>> own_;
  std::atomic<bool> done_{false}, closed_{false};
};

}  // namespace hvd::ops::ccl
