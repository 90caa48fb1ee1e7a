#include "ops/mpi/communicators.h"

namespace hvd::ops::mpi {
// What the thread shares with the maker, which may be gone before it.
struct World::Maker::Desk {
  Api api;
  std::vector<int> world_ranks;
  int32_t self;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<CommunicatorRequest> requests;  // guarded by mutex
  bool closing = false;                      // guarded by mutex
};

World::Maker::Maker(const Api& api, std::vector<int> world_ranks, int32_t self)
    : desk_(std::make_shared<Desk>()) {
  desk_->api = api;
  desk_->world_ranks = std::move(world_ranks);
  desk_->self = self;
  thread_ = std::thread([desk = desk_] { work(desk); });
}

std::shared_ptr<World::Maker> World::Maker::start(const Api& api, std::vector<int> world_ranks,
                                                  int32_t self) {
  return std::make_shared<Maker>(api, std::move(world_ranks), self);
}

World::Maker::~Maker() {
  {
    const std::lock_guard lock(desk_->mutex);
    desk_->closing = true;
  }
  desk_->changed.notify_all();
  if (thread_.joinable()) thread_.join();
}

void World::Maker::add(CommunicatorRequest request) {
  {
    const std::lock_guard lock(desk_->mutex);
    desk_->requests.push_back(std::move(request));
  }
  desk_->changed.notify_all();
}

void World::Maker::abandon() { thread_.detach(); }

void World::Maker::work(const std::shared_ptr<Desk>& desk) {
  std::unique_lock lock(desk->mutex);
  for (;;) {
    desk->changed.wait(lock, [&] { return desk->closing || !desk->requests.empty(); });
    if (desk->requests.empty()) return;
    CommunicatorRequest request = std::move(desk->requests.front());
    desk->requests.pop_front();
    lock.unlock();
    if (!request.members.empty()) {
      hvd::mpi::make_communicator(desk->api, desk->world_ranks, desk->self, request.members,
                                  request.communicator.get());
    } else if (request.communicator->state.load() == 1) {
      desk->api.comm_free(&request.communicator->comm);
    }
    request = {};
    lock.lock();
  }
}

}  // namespace hvd::ops::mpi
