// The interface to durable storage outside of the server, from which the next server resumes the job
// after this one is lost; etcd implements it (etcd/etcd_store.h). State, Exchanges and Membership
// write each change as a record (records.h). A reply leaves after the records that it depends on are
// stored. Lives on the server's loop.
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
  // The most records between two seals.
  static constexpr size_t kMostTogether = 64;

  virtual ~DurableStore() = default;

  // Names and records are any bytes. All that is put and removed before `seal` is stored in one
  // transaction, or not at all.
  virtual void put(std::string name, Bytes record) = 0;
  virtual void remove(std::string name) = 0;
  // Removes all records whose names begin with the prefix; alone between two seals.
  virtual void remove_below(std::string prefix) = 0;
  virtual void seal() = 0;
  // True when all earlier changes are stored and this server owned the job at some moment since the
  // call. False when it no longer owns the job: then it must not answer from what it holds.
  virtual net::Task<bool> confirm() = 0;
  // `told` is called once with the reason, when confirm is false from then on.
  virtual void on_lost(std::function<void(Status)> told) = 0;
  // The job has ended: removes its records. Needs the loop to run for another moment.
  virtual void end() = 0;
  // This server ends, the job does not.
  virtual void stop() = 0;
};

// What a server starts from: empty, or the records of the server before it.
struct OpenedStore {
  std::shared_ptr<DurableStore> store;
  Records records;
};

}  // namespace hvd::rendezvous
