// What a server keeps outside of itself, so that the next one goes on where it was lost. A seam:
// etcd (etcd/etcd_keeper.h). State, Exchanges and Membership say what changed while it changes
// (kept.h); a reply leaves after what it rests on is kept. Lives on the server's loop.
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

class Keeper {
 public:
  // Of records between two seals.
  static constexpr size_t kMostTogether = 64;

  virtual ~Keeper() = default;

  // Names and records are any bytes. All that is put and removed before `seal` is kept together or
  // not at all.
  virtual void put(std::string name, Bytes record) = 0;
  virtual void remove(std::string name) = 0;
  // All records whose names begin so; alone between two seals.
  virtual void remove_below(std::string prefix) = 0;
  virtual void seal() = 0;
  // True when all before is kept and, at some moment since the call, this was the server of the
  // job. False when it is not any more: then nothing that it holds may be told to anybody.
  virtual net::Task<bool> confirm() = 0;
  // Called once, when confirm is false from here on: says why.
  virtual void on_lost(std::function<void(Status)> told) = 0;
  // The job has ended: what was kept is removed. Needs the loop to run on for a moment.
  virtual void end() = 0;
  // This server ends, the job does not.
  virtual void stop() = 0;
};

// What a server begins with: empty, or what the one before has kept.
struct Kept {
  std::shared_ptr<Keeper> keeper;
  Records records;
};

}  // namespace hvd::rendezvous
