#include "rendezvous/store/membership.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "rendezvous/store/durable_store.h"

namespace hvd::rendezvous {

std::vector<Place> number_places(std::span<const std::string> hosts) {
  std::map<std::string, size_t, std::less<>> index;  // host -> its index in members
  std::vector<std::vector<size_t>> members;          // workers of each host, by first worker
  for (size_t worker = 0; worker < hosts.size(); ++worker) {
    const auto [entry, is_new] = index.emplace(hosts[worker], members.size());
    if (is_new) members.emplace_back();
    members[entry->second].push_back(worker);
  }
  std::vector<int> with_local_rank(hosts.size());  // number of hosts so far, by local rank
  std::vector<Place> places(hosts.size());
  int rank = 0;
  for (const auto& host : members) {
    for (size_t local = 0; local < host.size(); ++local) {
      Place& place = places[host[local]];
      place.rank = rank++;
      place.size = static_cast<int>(hosts.size());
      place.local_rank = static_cast<int>(local);
      place.local_size = static_cast<int>(host.size());
      place.cross_rank = with_local_rank[local]++;
    }
  }
  for (Place& place : places) {
    place.cross_size = with_local_rank[static_cast<size_t>(place.local_rank)];
  }
  return places;
}

Result<std::optional<Place>> Membership::join(std::string_view worker, std::string_view host,
                                              OnPlace on_place, uint64_t& ticket) {
  if (size_ == 0) {
    return failed_precondition(
        "this rendezvous server assigns no ranks: start it with the number of processes, or "
        "set HOROVOD_RANK and HOROVOD_SIZE for each worker");
  }
  auto found = workers_.find(worker);
  if (is_complete_) {
    if (found != workers_.end()) return std::optional(found->second.place);
    return failed_precondition(cat("the job already has its ", size_,
                                   " workers: another one of host ", printable(host),
                                   " is refused"));
  }
  if (found == workers_.end()) {
    found = workers_.emplace(worker, Worker{}).first;
  } else if (const OnPlace earlier = std::move(found->second.on_place)) {
    earlier(aborted("the wait for a place was taken over by a later connection of this worker"));
  }
  ticket = next_arrival_++;
  found->second = {std::string(host), ticket, Clock::now(), std::move(on_place), {}};
  if (workers_.size() < static_cast<size_t>(size_)) return std::optional<Place>();
  found->second.on_place = nullptr;
  complete();
  return std::optional(found->second.place);
}

std::vector<const Membership::Entry*> Membership::in_order() const {
  std::vector<const Entry*> order;
  for (const Entry& entry : workers_) order.push_back(&entry);
  std::sort(order.begin(), order.end(),
            [](const Entry* a, const Entry* b) { return a->second.arrival < b->second.arrival; });
  return order;
}

Status Membership::restore(ByteView record) {
  HVD_ASSIGN_OR_RETURN(const std::vector<records::WorkerRecord> workers,
                       records::read_workers(record));
  if (workers.size() != static_cast<size_t>(size_)) {
    return failed_precondition(cat("the stored job has ", workers.size(),
                                   " workers, and this server was started for ", size_,
                                   ": give -np ", workers.size(), ", or a new token to a new job"));
  }
  for (const records::WorkerRecord& one : workers) {
    workers_[one.worker] = {one.host, next_arrival_++, Clock::now(), {}, {}};
  }
  complete();
  return {};
}

void Membership::complete() {
  is_complete_ = true;
  std::vector<std::string> hosts;
  std::vector<records::WorkerRecord> workers;
  for (const Entry* entry : in_order()) {
    hosts.push_back(entry->second.host);
    workers.push_back({entry->first, entry->second.host});
  }
  const std::vector<Place> places = number_places(hosts);
  if (durable_)
    durable_->put(records::name(records::RecordKind::kPlaces), records::write_workers(workers));
  for (size_t i = 0; i < workers.size(); ++i) {
    Worker& worker = workers_.find(workers[i].worker)->second;
    worker.place = places[i];
    if (const OnPlace on_place = std::exchange(worker.on_place, nullptr)) on_place(places[i]);
  }
}

void Membership::withdraw(std::string_view worker, uint64_t ticket) {
  const auto found = workers_.find(worker);
  if (is_complete_ || found == workers_.end() || found->second.arrival != ticket) return;
  workers_.erase(found);
}

std::vector<Membership::Present> Membership::workers() const {
  std::vector<Present> present;
  for (const Entry* entry : in_order()) {
    const Worker& worker = entry->second;
    present.push_back({worker.host, worker.since, is_complete_ ? worker.place.rank : -1});
  }
  return present;
}

std::string Membership::describe() const {
  std::map<std::string, int> hosts;
  for (const auto& [name, worker] : workers_) ++hosts[worker.host];
  std::string list;
  size_t shown = 0;
  for (const auto& [host, count] : hosts) {
    if (++shown > 16) {
      list += cat(", and ", hosts.size() - 16, " hosts more");
      break;
    }
    list += cat(list.empty() ? "" : ", ", printable(host, 64), ": ", count);
  }
  const auto size = static_cast<size_t>(size_);
  return cat(workers_.size(), " of ", size, " workers are there (", list, "), ",
             size - std::min(size, workers_.size()), " are missing");
}

}  // namespace hvd::rendezvous
