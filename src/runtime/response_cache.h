// Names that all ranks agreed on before, under short ids: a name that asks for the same again is
// announced and planned by its id alone. The same on every rank, since every rank fills it from
// the plans, in their order. An id is never given twice. Belongs to the thread that makes progress.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/message.h"
#include "runtime/tensor_table.h"

namespace hvd::runtime {

struct CacheEntry {
  uint32_t id = 0;
  std::string text;
  Request request;             // this rank's own
  std::vector<RankRows> rows;  // of all ranks, ascending, where the operation has rows
  Name* name = nullptr;        // on this rank
  // Of the negotiation now (see Negotiator): who announced the id, how many the name in full.
  std::vector<uint32_t> reporters;
  uint32_t full_reporters = 0;
};

class ResponseCache {
 public:
  // nullptr when there is none.
  CacheEntry* find(uint32_t id) const {
    return id != 0 && id <= entries_.size() ? entries_[id - 1].get() : nullptr;
  }
  CacheEntry* find(std::string_view text) const;
  // What a plan says that the id stands for from now on. Ids come in order, without gaps.
  // nullptr when this one does not.
  CacheEntry* put(uint32_t id, std::string_view text);
  size_t size() const { return entries_.size(); }

 private:
  std::vector<std::unique_ptr<CacheEntry>> entries_;  // by id, from 1
  std::unordered_map<std::string_view, CacheEntry*> by_text_;
};

}  // namespace hvd::runtime
