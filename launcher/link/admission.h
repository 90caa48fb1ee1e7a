// Admits agents that connect to the launcher (horovod-agent --join): encrypts their links, reads the agent's name and
// checks that the agent holds the token. JoinQueue calls admit() for each accepted connection, and cancels the call
// after a time limit. Lives on the launcher's loop.
#pragma once

#include <memory>
#include <string>
#include <variant>

#include "base/bytes.h"
#include "base/result.h"
#include "launcher/protocol/protocol.h"
#include "launcher/spawn/spawner.h"
#include "net/asio.h"
#include "net/tls/tls_front.h"

namespace hvd::launcher {

struct AdmittedAgent {
  std::string name;     // the agent's own --name, or its host name
  std::string version;  // version of the agent
  std::unique_ptr<Duplex> duplex;
};

// A previously admitted agent whose link broke: it offers to resume.
struct ReturnedAgent {
  Resume offer;
  Nonce challenge{};  // the challenge that `offer` answers
  std::unique_ptr<Duplex> duplex;
};

// Logs the reasons for refusing callers. Any process that reaches the port can connect, so only the first refusals are
// logged.
class RefusedCallers {
 public:
  void report(const std::string& why);

 private:
  int count_ = 0;
};

// TLS for the port at which agents join: authenticated by the token, and also by the certificate in this PEM file
// if a file is given. Logs agents that do not hold the token, and links with altered bytes.
Result<net::TlsFront> tls_of_agents(const Secret& token, const std::string& certificate,
                                    const std::string& key);

// Reads the first message of a peer, which sends no further bytes before the answer.
net::Task<Result<Message>> read_message(Duplex& duplex);

// Admits the agent at the other end of an accepted connection. Closes the socket on an error. The offer of
// a returned agent is not yet verified.
net::Task<Result<std::variant<AdmittedAgent, ReturnedAgent>>> admit(net::AcceptedSocket socket,
                                                                    Bytes token);

}  // namespace hvd::launcher
