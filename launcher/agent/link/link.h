// Opens a connection between an agent and its launcher: one function for each kind of connection. The result is two
// descriptors, and a cipher for TLS.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/result.h"
#include "base/secrets/hmac.h"
#include "base/unique_fd.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {

// The encryption layer between an agent's frames and the descriptors of its link. Only
// horovod-agent-tls implements it (tls_program); horovod-agent, which the launcher copies to hosts,
// has no_tls_program instead.
// Each function has the contract of the function of the same name in net::TlsSession.
class Cipher {
 public:
  virtual ~Cipher() = default;
  virtual Result<bool> shake_hands() = 0;
  virtual Result<std::optional<size_t>> read(std::span<std::byte> buffer) = 0;
  virtual Status write(ByteView bytes) = 0;
  virtual void feed(ByteView received) = 0;
  virtual Bytes take_output() = 0;
};

// Creates the cipher for a launcher whose certificate is for `host`. `ca_file` empty: use the system's
// certificate authorities.
Result<std::unique_ptr<Cipher>> make_cipher(const std::string& host, const std::string& ca_file);
// Creates the cipher for a launcher that holds the same key (join_key).
Result<std::unique_ptr<Cipher>> make_cipher(const Digest& key);

// Returns OK in a program with TLS. A program without TLS executes the TLS program in its folder, with the same command
// line. An error states why that program could not be executed.
Status speak_tls(char** command);

// The descriptors of a connection. Each is non-blocking, close-on-exec, and greater than 2.
struct Link {
  UniqueFd input;
  UniqueFd output;
  std::unique_ptr<Cipher> cipher = {};  // null: frames are sent without encryption
};

// A connection on which the launcher has requested an offer to resume.
struct Returned {
  Link connection;
  Nonce challenge{};
};

// A connection on which the launcher has begun a session.
struct OpenedLink {
  Link connection;
  OpenSession session;
  // Connects to the launcher again; blocks, may run on any thread. kNotFound: nothing listens at the address. Null if
  // the agent does not connect by itself.
  std::function<Result<Returned>()> redial = {};
};

// Makes a connection of two descriptors of any kind (ssh, kubectl exec, pipes, a socket).
Result<Link> taken_over(int input, int output);
// Makes a connection of standard input and output. Replaces both by /dev/null, so that a stray write to
// standard output cannot corrupt the connection.
Result<Link> stream_link();

// Waits until the launcher begins or continues a session. Returns an error if the launcher is silent for as long as an
// agent's first lease. kUnavailable: the connection broke. kAborted: the launcher ended the connection, for the reason
// in the message.
using Opening = std::variant<OpenSession, Reattach>;
Result<Opening> receive_opening(int input, Cipher* cipher);

// Connects to the launcher at "tcp:address:port" (a numeric address), "unix:/path" or "unix:@name", the address of the
// launcher's rendezvous server. The two sides prove that they hold the token. `name` identifies this agent to the
// launcher. kAborted: the launcher accepts no agent now. kUnavailable: another call may succeed. `cipher`: TLS with
// that server, before its handshake; null: --insecure-plaintext. `is_keyed`: the token is the TLS key; without it, a
// launcher that closes the connection has refused the proof of the token.
Result<Link> call_home(const std::string& address, ByteView token, const std::string& name,
                       Deadline deadline, std::unique_ptr<Cipher> cipher, bool is_keyed);
// Connects to the same launcher to resume the session. kNotFound: nothing listens at the address.
Result<Returned> call_again(const std::string& address, Deadline deadline,
                            std::unique_ptr<Cipher> cipher);

}  // namespace hvd::launcher
