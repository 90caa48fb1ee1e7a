// The launcher's side of `horovodrun exec`: runs one command beside some of the ranks, on their hosts, and forwards the
// output as it arrives. Ends the commands when the client has disconnected. JobInspector owns this object. Lives on the
// launch's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launcher/hosts/host_table.h"
#include "launcher/protocol/protocol.h"
#include "net/asio.h"

namespace hvd::launcher {

class RankCommands {
 public:
  // Passes a Run, OutputCredit or StopRun to the host of a rank. Returns a line with the reason if the message cannot
  // be sent; else an empty string.
  using Send = std::function<std::string(int rank, const Message& order)>;
  // `hosts` must outlive this object.
  RankCommands(net::asio::any_io_executor executor, const HostTable& hosts, Send send)
      : executor_(std::move(executor)), hosts_(hosts), send_(std::move(send)) {}

  // Runs the command beside each selected rank; without a selection, beside one rank of each host. Returns when all
  // commands have ended; they are ended if the client closes its socket. Sends the client their output in records
  // (inspection.h), and then an ExecResult with the first exit code that is not 0. With several ranks, each line has a
  // tag of its rank.
  net::Task<void> run(Run wish, net::StreamSocket& caller);
  void on_output_chunk(const OutputChunk& chunk);
  void on_exec_result(const ExecResult& ran);
  // Ends the wait for commands on this host: the host is lost, or all its ranks have ended.
  void on_host_gone(int host);
  // Call when the host has answered a later message: it has then received all orders of earlier calls.
  void on_answer(int host);
  // Call when the host does not answer: ends the wait for commands that it may not have received. `why` is a line.
  void on_silence(int host, const std::string& why);

 private:
  struct Beside;   // one command beside one rank
  struct Pending;  // one call of run()

  struct Place {
    int rank = 0;     // the rank's current number, for the user
    int process = 0;  // the rank's process number in the table and in messages to agents
  };

  std::vector<Place> places() const;
  std::vector<Place> places_of(const Run& wish, Status* status) const;
  void order(Run wish, const std::vector<Place>& places, Pending& pending);
  net::Task<bool> send_chunk(net::StreamSocket& caller, Pending& pending, const OutputChunk& chunk);
  Beside* find(uint32_t number, Pending** of);
  bool is_on(const Beside& beside, int host) const;

  net::asio::any_io_executor executor_;
  const HostTable& hosts_;
  const Send send_;
  std::vector<Pending*> pending_;
  uint32_t last_ = 0;  // number of the latest order
};

}  // namespace hvd::launcher
