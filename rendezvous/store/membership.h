// Hands out places in a job to workers that come with nothing but the name of their host: when
// `size` are there, everybody gets a rank. Pure: no I/O; one thread at a time. It looks at the
// clock only to say since when somebody is there.
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
  int cross_rank = 0;  // index of the host among those that have this local rank
  int cross_size = 1;  // how many those are
  int generation = 0;

  friend bool operator==(const Place&, const Place&) = default;
};

// One host key for each worker, in the order of arrival; the places in the same order. Ranks of
// one host are neighbours, hosts are in the order of their first worker.
std::vector<Place> number_places(std::span<const std::string> hosts);

class DurableStore;

class Membership {
 public:
  using OnPlace = std::function<void(Result<Place>)>;

  // 0: hands out none.
  explicit Membership(int size) : size_(size) {}

  // From here on, each change is written to `durable`.
  void write_to(DurableStore* durable) { durable_ = durable; }
  // Restores the places that an earlier server has handed out. Before any other call.
  Status restore(ByteView record);

  // A place, when the job is complete (with this worker, or before: then the same as last time);
  // or nothing, and on_place is called once, later. `worker` tells a repetition from a newcomer.
  // A surplus worker is kFailedPrecondition.
  Result<std::optional<Place>> join(std::string_view worker, std::string_view host,
                                    OnPlace on_place, uint64_t& ticket);
  // A worker that no longer waits. Nothing once the job is complete, or when it has joined again.
  void withdraw(std::string_view worker, uint64_t ticket);
  // "5 of 8 workers are there (a: 4, b: 1), 3 are missing".
  std::string describe() const;
  int size() const { return size_; }
  bool is_complete() const { return is_complete_; }
  struct Present {
    std::string host;
    Clock::time_point since;
    int rank = -1;  // before the job is complete
  };
  // In the order of arrival.
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
  // Of arrival.
  std::vector<const Entry*> in_order() const;

  DurableStore* durable_ = nullptr;  // null: nothing is stored
  int size_;
  bool is_complete_ = false;
  uint64_t next_arrival_ = 1;
  std::map<std::string, Worker, std::less<>> workers_;
};

}  // namespace hvd::rendezvous
