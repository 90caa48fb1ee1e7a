// Assigns ranks to workers that know only their host: when `size` workers have joined, each worker gets a place. Owns
// the list of workers and the requests that wait for a place. No I/O; reads the clock only for the time at which a
// worker joined. Lives on the server's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"

namespace hvd::rendezvous {

struct Place {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  int cross_rank = 0;  // index of the host among the hosts that have this local rank
  int cross_size = 1;  // number of hosts with this local rank
  int generation = 0;

  friend bool operator==(const Place&, const Place&) = default;
};

// Returns the place of each worker. `hosts` has the host key of each worker, in the order of arrival.
// Ranks of one host are consecutive; hosts are in the order of their first worker.
std::vector<Place> number_places(std::span<const std::string> hosts);

class DurableStore;

class Membership {
 public:
  using OnPlace = std::function<void(Result<Place>)>;

  // If `size` is 0, join() returns an error.
  explicit Membership(int size) : size_(size) {}

  // Sets the durable store to which each later change is written.
  void write_to(DurableStore* durable) { durable_ = durable; }
  // Restores the places that an earlier server has assigned. Call it before all other functions.
  Status restore(ByteView record);

  // Returns a place if the job is complete; otherwise nullopt, and later calls on_place once. `worker` is the
  // worker's id. A call with an id that has joined before is a repetition: it ends the wait of the earlier call
  // with kAborted, and gets the same place. A surplus worker gets kFailedPrecondition.
  Result<std::optional<Place>> join(std::string_view worker, std::string_view host,
                                    OnPlace on_place, uint64_t& ticket);
  // Removes a worker that no longer waits. Does nothing if the job is complete, or if the worker has
  // joined again.
  void withdraw(std::string_view worker, uint64_t ticket);
  // Returns, for example, "5 of 8 workers are there (a: 4, b: 1), 3 are missing".
  std::string describe() const;
  int size() const { return size_; }
  bool is_complete() const { return is_complete_; }
  struct Present {
    std::string host;
    Clock::time_point since;
    int rank = -1;  // -1 until the job is complete
  };
  // Workers in the order of arrival.
  std::vector<Present> workers() const;

 private:
  struct Worker {
    std::string host;
    uint64_t arrival = 0;
    Clock::time_point since;
    OnPlace on_place;
    Place place;
  };

  using Entry = std::pair<const std::string, Worker>;

  void complete();
  // Returns the entries of workers_ in the order of arrival.
  std::vector<const Entry*> in_order() const;

  DurableStore* durable_ = nullptr;  // null: nothing is stored
  int size_;
  bool is_complete_ = false;
  uint64_t next_arrival_ = 1;
  std::map<std::string, Worker, std::less<>> workers_;
};

}  // namespace hvd::rendezvous
