#include "launcher/agent/link/link.h"
#include "net/tls/tls_session.h"

namespace hvd::launcher {

namespace {

class TlsCipher : public Cipher {
 public:
  explicit TlsCipher(net::TlsSession session) : session_(std::move(session)) {}

  Result<bool> shake_hands() override { return session_.shake_hands(); }
  Result<std::optional<size_t>> read(std::span<std::byte> buffer) override {
    return session_.read(buffer);
  }
  Status write(ByteView bytes) override { return session_.write(bytes); }
  void feed(ByteView received) override { session_.feed(received); }
  Bytes take_output() override { return session_.take_output(); }

 private:
  net::TlsSession session_;
};

}  // namespace

Result<std::unique_ptr<Cipher>> make_cipher(const std::string& host, const std::string& ca_file) {
  HVD_ASSIGN_OR_RETURN(auto session,
                       net::TlsSession::client(host, {.ca_file = ca_file, .ca_setting = "--ca"}));
  return std::unique_ptr<Cipher>(std::make_unique<TlsCipher>(std::move(session)));
}

Result<std::unique_ptr<Cipher>> make_cipher(const Digest& key) {
  HVD_ASSIGN_OR_RETURN(auto session, net::TlsSession::with_shared_key(key));
  return std::unique_ptr<Cipher>(std::make_unique<TlsCipher>(std::move(session)));
}

Status speak_tls(char**) { return {}; }

}  // namespace hvd::launcher
