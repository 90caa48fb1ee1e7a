// The agent's end of host-level aggregation (rendezvous/client/host_aggregation.h): receives the records of this host's
// ranks, requests that one rank forwards them to the store, and distributes the result. Does not parse records. If the
// forwarding rank ends, another rank forwards the records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/protocol/host_job.h"
#include "net/event_loop.h"
#include "net/packet_socket.h"

namespace hvd::launcher {

class HostAggregator {
 public:
  explicit HostAggregator(net::EventLoop& loop) : loop_(loop) {}
  ~HostAggregator() { close(); }

  // Listens on this abstract name for the ranks of this host.
  Status listen(const std::string& name, const HostJob& job);
  void close();

 private:
  struct Caller {
    UniqueFd socket;
    std::string exchange;  // empty: no record received yet
  };
  struct PendingExchange {
    std::map<int32_t, Bytes> records;  // key: rank of this host
    std::optional<int> forwarder;      // the caller that forwards the records
  };

  void accept();
  void receive(int caller);
  Status handle(int caller, const net::Packet& packet);
  void distribute(int from, int file);
  // If all records have arrived and a rank remains, requests that one rank forwards the records.
  void choose_forwarder(const std::string& name);
  void drop(int caller);

  net::EventLoop& loop_;
  UniqueFd listener_;
  uint32_t host_ = 0;
  uint32_t hosts_ = 1;
  size_t ranks_ = 0;
  std::map<int, Caller> callers_;  // key: descriptor
  std::map<std::string, PendingExchange> exchanges_;
};

}  // namespace hvd::launcher
