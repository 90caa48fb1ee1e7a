// The format of the records in a DurableStore: names, answers to clients, records of exchanges, and
// places; the record of a value is the value. Stateless, without I/O; the readers accept any bytes.
// StoreState, AnsweredCalls, Exchanges and Membership use this format.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "rendezvous/store/state.h"

namespace hvd::rendezvous::records {

// The first byte of a record's name.
enum class RecordKind : char {
  kValue = 'k',
  kOutcome = 'c',
  kExchange = 'x',
  kPlaces = 'm',
  kRevision = 'r'
};

std::string name(RecordKind kind, std::string_view rest = {});

// The last call of a client that changed something.
struct OutcomeRecord {
  uint64_t sequence = 0;
  bool swapped = false;  // whether a compare-and-set has set the key
};
Bytes write_outcome(const OutcomeRecord& outcome);
Result<OutcomeRecord> read_outcome(ByteView record);

// The names of all records of an exchange begin with its prefix. No prefix begins with another
// exchange's prefix.
std::string exchange_prefix(std::string_view exchange);
std::string exchange_record_name(std::string_view exchange, int index);
struct ExchangeName {
  std::string exchange;
  int index = 0;
};
Result<ExchangeName> read_exchange_name(std::string_view rest);
Bytes write_exchange(int count, ByteView record);
struct ExchangeRecord {
  int count = 0;
  Bytes bytes;
};
Result<ExchangeRecord> read_exchange(ByteView record);

// Workers in the order of their arrival.
struct WorkerRecord {
  std::string worker;
  std::string host;
};
Bytes write_workers(const std::vector<WorkerRecord>& workers);
Result<std::vector<WorkerRecord>> read_workers(ByteView record);

Bytes write_revision(uint64_t revision);
Result<uint64_t> read_revision(ByteView record);

}  // namespace hvd::rendezvous::records
