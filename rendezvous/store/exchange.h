// Exchanges of a server: each of `count` parties stores one record under its index and gets the requested parties'
// records, in one request. Exchanges owns these records and the waiting requests. No I/O; one thread at a time.
// Clients parse the replies by the functions below. Callbacks run inside the call that causes them, and must not
// call this object.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "rendezvous/store/state.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

// Ranges of indices, for example "0-3,9": ascending, without overlap, below `count`.
using Ranges = std::vector<std::pair<int, int>>;  // first and last
std::string to_text(const Ranges& ranges);
Result<Ranges> parse_ranges(std::string_view text, int count);
Ranges ranges_of(std::vector<int> indices);

// A record with its index. PROTOCOL.md defines the text of several records, ascending.
struct Record {
  int index = 0;
  Bytes bytes;
};
Result<std::vector<Record>> parse_records(ByteView text);

// For implementations of Store::exchange: checks of its arguments, records in its reply, and the
// error for an exchange that was forgotten meanwhile.
Status check_party(const Party& party);
Result<std::vector<Bytes>> records_for(const Party& party, ByteView text);
Status forgotten(std::string_view name);

class DurableStore;

class Exchanges {
 public:
  using OnRecords = std::function<void(ValuePtr)>;
  struct Ticket {
    std::string name;
    uint64_t id = 0;
  };

  // Sets the durable store to which each later change is written.
  void write_to(DurableStore* durable) { durable_ = durable; }
  // Restores a record of an earlier server. `name` is without its first byte, the kind. Call it
  // before all other functions.
  Status restore(std::string_view name, ByteView record);

  // Returns the wanted records as text if all have arrived. Otherwise sets `ticket` and later calls
  // on_records once. An empty `wanted` means the records of all parties. If the index has an equal
  // record, the call is a repetition; if it has a different one, returns kFailedPrecondition.
  Result<ValuePtr> join(std::string_view name, int count, int index, Bytes record, Ranges wanted,
                        OnRecords on_records, std::optional<Ticket>* ticket);
  void withdraw(const Ticket& ticket);
  // Forgets the exchange. Calls the on_records of each waiting request with null.
  void remove(std::string_view name);
  // Like remove(), for all exchanges whose names begin with `prefix`.
  void remove_all(std::string_view prefix);
  // Returns, for example, "exchange 'x' waits for 2 of 8 records: 3 and 7".
  std::string describe(std::string_view name) const;
  size_t waiter_count() const { return waiter_count_; }

 private:
  struct Waiter {
    Ranges wanted;
    size_t missing = 0;
    OnRecords on_records;
  };
  struct Exchange {
    std::vector<std::optional<Bytes>> records;
    size_t present = 0;
    std::map<uint64_t, Waiter> waiters;
    // The waiters that want each index. Waiters for all indices are not in this map, since they would need n * n
    // entries.
    std::map<int, std::vector<uint64_t>> waiting_for;
    std::vector<uint64_t> waiting_for_all;
    ValuePtr all;  // text of all records, after the first request for all
  };
  // Returns the exchange of this name, and creates it without records if necessary.
  Exchange& exchange_of(std::string_view name, int count);
  static ValuePtr text_of(Exchange& exchange, const Ranges& wanted);
  void arrived(Exchange& exchange, int index);

  DurableStore* durable_ = nullptr;  // null: nothing is stored
  std::map<std::string, Exchange, std::less<>> exchanges_;
  uint64_t next_ticket_ = 1;
  size_t waiter_count_ = 0;
};

}  // namespace hvd::rendezvous
