// A TCP connection between two hosts of an examination. Both ends prove that they have the job's secret before either
// uses a byte of the other. Each message is JSON with a code that covers its text and its number (HMAC-SHA256), so that
// nothing can be inserted. Raw bytes, which only load the link, have no code. Blocks the calling thread, until the
// deadline at most. One thread at a time.
#pragma once

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/fork_guard.h"
#include "base/result.h"
#include "base/secrets/secret.h"

namespace hvd::launcher {

// Return a value of a message; `otherwise` if it is missing, or has another type or a number outside the range. The
// other host proves its secret, not that its messages make sense.
inline double number_in(const nlohmann::json& message, const char* key, double otherwise) {
  const auto found = message.find(key);
  return found != message.end() && found->is_number() ? found->get<double>() : otherwise;
}
inline int whole_in(const nlohmann::json& message, const char* key, int most, int otherwise) {
  const double value = number_in(message, key, -1);
  return value >= 0 && value <= most ? static_cast<int>(value) : otherwise;
}
inline std::string text_in(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_string() ? found->get<std::string>() : "";
}

// Returns the earlier one of the deadline and this time from now.
inline Deadline earlier(Deadline deadline, double seconds) {
  return Deadline::at(std::min(deadline.time(), Deadline::after_seconds(seconds).time()));
}

class ProvenStream {
 public:
  // Connects to the first of the addresses that answers. `name`: the caller's role, which the proof covers.
  static Result<ProvenStream> connect(const std::vector<std::string>& addresses, uint16_t port,
                                      const Secret& secret, std::string_view name,
                                      Deadline deadline);
  // Proves a connection that this end has opened.
  static Result<ProvenStream> join(GuardedFd socket, const Secret& secret, std::string_view name,
                                   Deadline deadline);
  // Proves a connection that a listener has accepted. name() is then the client's role, which begins with `role`.
  static Result<ProvenStream> accept(GuardedFd socket, const Secret& secret, std::string_view role,
                                     Deadline deadline);

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }  // the address that connect() chose
  int fd() const { return socket_.get(); }

  Status send(const nlohmann::json& message, Deadline deadline);
  Result<nlohmann::json> receive(Deadline deadline);

  Status write(std::span<const std::byte> bytes, Deadline deadline);
  Status read(std::span<std::byte> bytes, Deadline deadline);

 private:
  explicit ProvenStream(GuardedFd socket)
      : socket_(std::move(socket)), session_(Secret::random()) {}
  Status begin_as_client(const Secret& secret, std::string_view name, Deadline deadline);
  Status begin_as_server(const Secret& secret, std::string_view role, Deadline deadline);
  Digest code_of(std::string_view text, uint64_t number, bool is_from_client) const;

  GuardedFd socket_;
  Secret session_;
  bool is_client_ = false;
  uint64_t sent_ = 0, received_ = 0;
  std::string name_, address_;
};

}  // namespace hvd::launcher
