// One rank's view of the job's store when ranks of this process simulate several machines whose TCP
// links go through a relay: rewrites the ranks' address records.
#pragma once

#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>

#include "collectives/mesh/handshake.h"
#include "rendezvous/store/store.h"
#include "runtime/ranks.h"
#include "runtime/relay.h"

namespace hvd::test {

class LinkStore final : public rendezvous::Store {
 public:
  LinkStore(std::shared_ptr<Store> store, Relay& relay, std::vector<int32_t> machines, int rank)
      : store_(std::move(store)), relay_(relay), machines_(std::move(machines)), rank_(rank) {}

  Status set(std::string_view key, ByteView value, Deadline deadline) override {
    return store_->set(key, said(value), deadline);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    return seen(store_->get(key, deadline));
  }
  Result<Bytes> wait(std::string_view key, Deadline deadline) override {
    return seen(store_->wait(key, deadline));
  }
  Status remove(std::string_view key, Deadline deadline) override {
    return store_->remove(key, deadline);
  }
  Result<rendezvous::Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                           ByteView value, Deadline deadline) override {
    return store_->compare_and_set(key, expected, value, deadline);
  }
  Result<std::vector<Bytes>> exchange(std::string_view name, const rendezvous::Party& party,
                                      ByteView record, Deadline deadline) override {
    auto records = store_->exchange(name, party, said(record), deadline);
    if (!records.ok()) return records;
    for (Bytes& one : *records) one = seen(std::move(one)).value();
    return records;
  }
  Status forget(std::string_view exchange, Deadline deadline) override {
    return store_->forget(exchange, deadline);
  }

 private:
  static Bytes to_bytes(std::initializer_list<unsigned> values) {
    Bytes bytes;
    for (const unsigned value : values) bytes.push_back(static_cast<std::byte>(value));
    return bytes;
  }
  // Makes a rank reachable through the relay only.
  Bytes said(ByteView value) const {
    auto record = collectives::PeerRecord::decode(value);
    if (!record.ok()) return Bytes(value.begin(), value.end());
    record->port = relay_.route(record->port);
    record->candidates = {{"lo", to_bytes({127, 0, 0, 1})}};
    return record->encode();
  }
  // A rank's own machine keeps its name, so that all ranks of the machine see the same name.
  Result<Bytes> seen(Result<Bytes> value) const {
    if (!value.ok()) return value;
    auto record = collectives::PeerRecord::decode(*value);
    if (!record.ok()) return value;
    const int32_t machine = machines_[static_cast<size_t>(record->rank)];
    if (machine != machines_[static_cast<size_t>(rank_)]) {
      record->machine += "/" + std::to_string(machine);
    }
    return record->encode();
  }

  const std::shared_ptr<Store> store_;
  Relay& relay_;
  const std::vector<int32_t> machines_;
  const int rank_;
};

// Options for ranks on these machines whose links go through the relay.
inline RanksOptions over_relay(Relay& relay, const std::vector<int32_t>& machines) {
  ::setenv("HOROVOD_TEST_LOOPBACK", "1", 1);  // the relay connects on loopback
  RanksOptions options;
  options.links = Links::kBuiltin;
  options.store_of = [&relay, machines](int rank, std::shared_ptr<rendezvous::Store> store) {
    return std::make_shared<LinkStore>(std::move(store), relay, machines, rank);
  };
  return options;
}

// Assigns each rank its own machine.
inline std::vector<int32_t> machine_each(int ranks) {
  std::vector<int32_t> machines(static_cast<size_t>(ranks));
  std::iota(machines.begin(), machines.end(), 0);
  return machines;
}

}  // namespace hvd::test
