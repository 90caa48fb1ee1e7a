// How the communicators of process sets are made: by a thread, since it waits for all members.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>

#include "ops/mpi/world.h"

namespace hvd::ops::mpi {

class World::Maker : public std::enable_shared_from_this<World::Maker> {
 public:
  struct CommunicatorRequest {
    std::shared_ptr<Communicator> communicator;
    std::vector<int32_t> members;  // empty: it is given back
  };
  static std::shared_ptr<Maker> start(const Api& api, std::vector<int> world_ranks, int32_t self);
  // Ends when all it was told is done.
  ~Maker();
  void add(CommunicatorRequest request);
  // Detaches the thread, which may hang in MPI for ever; it owns what it needs.
  void abandon();

  Maker(const Api& api, std::vector<int> world_ranks, int32_t self);

 private:
  struct Desk;
  static void work(const std::shared_ptr<Desk>& desk);
  std::shared_ptr<Desk> desk_;
  std::thread thread_;
};

}  // namespace hvd::ops::mpi
