#include "launcher/agent/link/join.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

#include "base/check.h"
#include "base/cores.h"
#include "base/process/spawn.h"
#include "base/text.h"
#include "launcher/protocol/token_proof.h"
#include "net/endpoint.h"
#include "net/resolve.h"
#include "net/socket_address.h"

namespace hvd::launcher {

namespace {

constexpr double kTrySeconds = 10;
constexpr double kFirstPause = 0.1;
constexpr double kLongestPause = 2;
// The time for attempts to reconnect to a launcher that has admitted this host; then the launcher is considered ended.
constexpr double kReturnSeconds = 30;

// Resolves names by a program, because this executable is static and the system's resolver needs
// shared libraries.
Result<std::string> resolve(const std::string& host) {
  if (!net::address_bytes(host).empty()) return host;
  const auto found =
      output_of({.arguments = {"getent", "ahosts", host}, .errors = kDevNull}, Deadline::never());
  const std::string text = found.ok() ? *found : "";
  const std::string address = text.substr(0, text.find_first_of(" \t\n"));
  if (!net::address_bytes(address).empty()) return address;
  if (const std::string advice = net::advice_on_long_name(host); !advice.empty()) {
    return unavailable(cat("'", printable(host), "' does not resolve", advice));
  }
  return unavailable(cat("'", printable(host),
                         "' does not resolve; check the name, or give an "
                         "address"));
}

std::string name_in_job(const JoinOptions& options) {
  char hostname[256] = "";
  ::gethostname(hostname, sizeof hostname - 1);
  const std::string name = options.name.empty() ? hostname : options.name;
  return cat(name.find(':') == std::string::npos ? name : cat("[", name, "]"), ":",
             options.slots > 0 ? options.slots : affinity_cores());
}

Result<std::unique_ptr<Cipher>> cipher_for(const net::Endpoint& where, const JoinOptions& options,
                                           bool is_https) {
  if (is_https) return make_cipher(where.host, options.ca_file);
  if (options.insecure_plaintext) return std::unique_ptr<Cipher>();
  return make_cipher(join_key(options.token));
}

// Waits in the launcher's queue until its job begins.
Result<OpenedLink> await_job(Link link, const std::string& address) {
  auto opening = receive_opening(link.input.get(), link.cipher.get());
  if (!opening.ok()) return opening.status().with_context(cat("the launcher at ", address));
  const auto* session = std::get_if<OpenSession>(&*opening);
  if (session == nullptr)
    return aborted(cat("the launcher at ", address, " takes this agent for another one"));
  return OpenedLink{std::move(link), *session};
}

Result<OpenedLink> try_once(const net::Endpoint& where, const JoinOptions& options, bool is_https,
                            bool& was_admitted) {
  net::Endpoint found = where;
  const bool is_keyed = !is_https && !options.insecure_plaintext;
  HVD_ASSIGN_OR_RETURN(auto cipher, cipher_for(where, options, is_https));
  const Secret token = cipher ? options.token : plaintext_token(options.token);
  if (where.family == net::Endpoint::Family::kTcp) {
    HVD_ASSIGN_OR_RETURN(found.host, resolve(where.host));
  }
  const std::string address = net::to_string(found);
  auto link = call_home(address, to_bytes(token.hex()), name_in_job(options),
                        Deadline::after_seconds(kTrySeconds), std::move(cipher), is_keyed);
  if (link.ok()) {
    was_admitted = true;
    HVD_ASSIGN_OR_RETURN(OpenedLink opened, await_job(std::move(*link), address));
    opened.redial = [where, options, is_https, address]() -> Result<Returned> {
      HVD_ASSIGN_OR_RETURN(auto again, cipher_for(where, options, is_https));
      return call_again(address, Deadline::after_seconds(kTrySeconds), std::move(again));
    };
    return opened;
  }
  const bool is_another_server = link.status().code() == Code::kFailedPrecondition;
  if (!is_another_server || is_https || options.insecure_plaintext) return link.status();
  return failed_precondition(
      cat(link.status().message(),
          "; start a horovodrun --listen of this version there, without --insecure-plaintext"));
}

// The guardian has blocked the signals that end a job. Until the job begins, this object lets these signals end this
// process.
class Interruptible {
 public:
  Interruptible() {
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, &before_);
  }
  ~Interruptible() { ::sigprocmask(SIG_SETMASK, &before_, nullptr); }
  Interruptible(const Interruptible&) = delete;

 private:
  sigset_t before_;
};

// Sleeps for 0.5 to 1.5 times the delay, so that many hosts do not connect at once.
void rest(double seconds) {
  ::poll(nullptr, 0, static_cast<int>(seconds * 1000 * (0.5 + random_fraction())));
}

}  // namespace

Result<OpenedLink> join(const JoinOptions& options) {
  std::string_view address = options.address;
  const bool is_https = address.starts_with(kHttps);
  if (is_https) {
    address.remove_prefix(kHttps.size());
    if (address.ends_with('/')) address.remove_suffix(1);
  }
  const bool is_full = !is_https && (address.starts_with("tcp:") || address.starts_with("unix:"));
  const auto where = net::parse_endpoint(is_full ? std::string(address) : cat("tcp:", address));
  if (!where.ok()) return where.status().with_context("--join");
  const Interruptible until_it_is_there;
  double pause = kFirstPause;
  bool has_warned = false;
  Deadline returns_by = Deadline::never();  // set after the launcher has admitted this host
  for (;;) {
    bool was_admitted = false;
    auto link = try_once(*where, options, is_https, was_admitted);
    const Code code = link.status().code();
    const bool may_come = code == Code::kUnavailable || code == Code::kDeadlineExceeded;
    if (link.ok() || !may_come || returns_by.passed()) return link;
    if (was_admitted) {
      returns_by = Deadline::after_seconds(kReturnSeconds);
      pause = kFirstPause;
    }
    if (!std::exchange(has_warned, true)) {
      std::fprintf(stderr, "horovod-agent: waiting for its launcher: %s\n",
                   link.status().message().c_str());
    }
    rest(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

}  // namespace hvd::launcher
