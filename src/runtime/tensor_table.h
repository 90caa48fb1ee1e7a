// The names in flight on this rank. A name that the response cache knows keeps its entry between
// uses, so that a repeated step hashes each name once and allocates nothing.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/status.h"
#include "runtime/submission.h"

namespace hvd::runtime {

struct CacheEntry;  // response_cache.h

struct Name {
  explicit Name(std::string text) : text(std::move(text)) {}
  const std::string text;

  // Guarded by tensor_table.
  uint32_t in_flight = 0;
  bool kept = false;

  // Of the thread that makes progress.
  Submission* announced = nullptr;
  std::deque<Submission*> waiting;  // behind it; only names that may be in flight twice
  CacheEntry* cached = nullptr;
  uint32_t traced_in = 0;  // the timeline that knows it as `traced_as`
  uint32_t traced_as = 0;
};

class TensorTable {
 public:
  // Puts a submission under its name. kAlreadyExists when one is in flight and `shared` is false.
  Status insert(std::string_view name, bool shared, Submission* submission);
  // The submissions are over, and with them the names that nobody keeps.
  void remove(std::span<Submission* const> submissions);
  // nullptr when nothing of that name is in flight.
  Name* find(std::string_view name);
  // Whether the name outlives its use.
  void keep(Name* name, bool kept);

 private:
  std::mutex mutex_;  // guards the map and what Name says it guards
  std::unordered_map<std::string_view, std::unique_ptr<Name>> names_;  // keys point into values
};

}  // namespace hvd::runtime
