// The encryption layer between an agent's frames and the descriptors of its link. Only
// horovod-agent-tls implements it (tls_program); horovod-agent, which the launcher copies to hosts,
// has no_tls_program instead.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/bytes.h"
#include "base/result.h"
#include "base/secrets/hmac.h"

namespace hvd::launcher {

// Each function has the contract of net::TlsSession's.
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

}  // namespace hvd::launcher
