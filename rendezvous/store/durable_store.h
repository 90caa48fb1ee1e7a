// The interface to durable storage outside the server. After a server is lost, the next server resumes the job from
// this storage. StoreState, Exchanges and Membership write each change as a record (below). A session sends a reply
// only after the records on which it depends are stored. Lives on the server's loop.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"
#include "base/status.h"
#include "net/asio.h"
#include "rendezvous/store/state.h"

namespace hvd::rendezvous {

using Records = std::map<std::string, Bytes, std::less<>>;

class DurableStore {
 public:
  // Maximum number of records between two seals.
  static constexpr size_t kMostTogether = 64;

  virtual ~DurableStore() = default;

  // Names and records are any bytes. All changes between two calls of seal() are stored in one transaction.
  virtual void put(std::string name, Bytes record) = 0;
  virtual void remove(std::string name) = 0;
  // Removes all records whose names begin with the prefix. Must be the only change between two seals.
  virtual void remove_below(std::string prefix) = 0;
  virtual void seal() = 0;
  // Returns true if all earlier changes are stored and this server owned the job at some moment after the call
  // began. Returns false if this server no longer owns the job, and after end() or stop(): the server must not
  // reply, since its values may be outdated.
  virtual net::Task<bool> confirm() = 0;
  // Calls the function once, with the reason, when this server no longer owns the job. From then on,
  // confirm() returns false.
  virtual void on_lost(std::function<void(Status)> on_lost) = 0;
  // Removes the records of the job, which has ended. The loop must run until they are removed.
  virtual void end() = 0;
  // Stops writing, because this server ends. The records stay for the next server.
  virtual void stop() = 0;
};

// A durable store and the records of the earlier server. If `store` is null, the server stores nothing.
struct OpenedStore {
  std::shared_ptr<DurableStore> store;
  Records records;
};

}  // namespace hvd::rendezvous

// The format of the records in a DurableStore: names, answers to clients, records of exchanges, and places; the record
// of a value is the value. Stateless, without I/O; the readers accept any bytes.
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

// A client's last call that changed something.
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
