// The agent's part in exchanges of the job's ranks (rendezvous/client/gathering.h): takes the record of
// each rank of this host, sends one of them to the store for all, and hands out what it brings.
// Reads no record. A rank that ends while it has the errand hands it on to another.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "launcher/agent/loop/poll_loop.h"
#include "launcher/protocol/host_job.h"
#include "net/packet_socket.h"

namespace hvd::launcher {

class Gatherer {
 public:
  explicit Gatherer(PollLoop& loop) : loop_(loop) {}
  ~Gatherer() { close(); }

  // At this abstract name, for the ranks of this host.
  Status listen(const std::string& name, const HostJob& job);
  void close();

 private:
  struct Caller {
    UniqueFd socket;
    std::string exchange;  // empty: has not offered yet
  };
  struct Exchange {
    std::map<int32_t, Bytes> records;  // of this host's ranks
    std::optional<int> errand;         // the caller who has it
  };

  void accept();
  void hear(int caller);
  Status obey(int caller, const net::Packet& packet);
  void deliver(int from, int file);
  // Gives the errand to somebody, when it is time and there is somebody.
  void send_out(const std::string& name);
  void drop(int caller);

  PollLoop& loop_;
  UniqueFd listener_;
  uint32_t host_ = 0;
  uint32_t hosts_ = 1;
  size_t ranks_ = 0;
  std::map<int, Caller> callers_;  // by descriptor
  std::map<std::string, Exchange> exchanges_;
};

}  // namespace hvd::launcher
