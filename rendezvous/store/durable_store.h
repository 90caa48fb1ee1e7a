// The interface to durable storage outside the server. After a server is lost, the next server resumes the
// job from this storage. EtcdStore implements the interface (etcd/etcd_store.h). StoreState, Exchanges and
// Membership write each change as a record (records.h). A session sends a reply only after the
// records on which it depends are stored. Lives on the server's loop.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/status.h"
#include "net/asio.h"

namespace hvd::rendezvous {

using Records = std::map<std::string, Bytes, std::less<>>;

class DurableStore {
 public:
  // Maximum number of records between two seals.
  static constexpr size_t kMostTogether = 64;

  virtual ~DurableStore() = default;

  // Names and records are any bytes. One transaction stores all changes since the last `seal`, or
  // none of them.
  virtual void put(std::string name, Bytes record) = 0;
  virtual void remove(std::string name) = 0;
  // Removes all records whose names begin with the prefix. Must be the only change between two seals.
  virtual void remove_below(std::string prefix) = 0;
  virtual void seal() = 0;
  // Returns true if all earlier changes are stored and this server owned the job at some moment after the call
  // began. Returns false if this server no longer owns the job: its values may be outdated, and it must not reply.
  virtual net::Task<bool> confirm() = 0;
  // Calls the function once, with the reason, when this server no longer owns the job. From then on,
  // confirm() returns false.
  virtual void on_lost(std::function<void(Status)> on_lost) = 0;
  // Removes the records of the job, which has ended. The loop must run until they are removed.
  virtual void end() = 0;
  // Stops writing, because this server ends. The records stay for the next server.
  virtual void stop() = 0;
};

// A durable store and the records of the earlier server. If null, the server stores nothing.
struct OpenedStore {
  std::shared_ptr<DurableStore> store;
  Records records;
};

}  // namespace hvd::rendezvous
