// Loads libssh when the launcher first needs it: a launcher without ssh hosts starts without libssh and
// Kerberos. The functions of libssh keep their names. Call libssh() before any of these functions, and call
// none of them if libssh() returns an error.
#pragma once

#include <libssh/callbacks.h>
#include <libssh/libssh.h>

#include <memory>

#include "base/result.h"

namespace hvd::launcher {

// clang-format off
#define HVD_LIBSSH_FUNCTIONS(X) X(ssh_channel_close) X(ssh_channel_free) X(ssh_channel_is_closed) \
  X(ssh_channel_is_eof) X(ssh_channel_new) X(ssh_channel_open_session) \
  X(ssh_channel_read_nonblocking) X(ssh_channel_request_exec) X(ssh_channel_write) \
  X(ssh_clean_pubkey_hash) X(ssh_connect) X(ssh_event_add_session) X(ssh_event_dopoll) \
  X(ssh_event_free) X(ssh_event_new) X(ssh_free) X(ssh_get_error) X(ssh_get_fingerprint_hash) \
  X(ssh_get_poll_flags) X(ssh_get_publickey_hash) X(ssh_get_server_publickey) X(ssh_get_status) \
  X(ssh_key_cmp) X(ssh_key_free) X(ssh_key_type) X(ssh_key_type_to_char) \
  X(ssh_known_hosts_parse_line) X(ssh_knownhosts_entry_free) X(ssh_new) X(ssh_options_set) \
  X(ssh_pki_export_pubkey_base64) X(ssh_pki_import_privkey_file) X(ssh_remove_channel_callbacks) \
  X(ssh_set_blocking) X(ssh_set_channel_callbacks) X(ssh_set_counters) X(ssh_set_log_callback) \
  X(ssh_string_free_char) X(ssh_userauth_agent) X(ssh_userauth_list) X(ssh_userauth_none) \
  X(ssh_userauth_publickey)
// clang-format on

struct LibsshFunctions {
#define HVD_LIBSSH_MEMBER(name) decltype(&::name) name = nullptr;
  HVD_LIBSSH_FUNCTIONS(HVD_LIBSSH_MEMBER)
#undef HVD_LIBSSH_MEMBER
};
// Loads libssh at the first call. An error names the missing part.
const Result<LibsshFunctions>& libssh();

template <auto Function>
struct LibsshCall {
  template <typename... Arguments>
  auto operator()(Arguments... arguments) const {
    return ((*libssh()).*Function)(arguments...);
  }
};
#define HVD_LIBSSH_CALL(name) inline constexpr LibsshCall<&LibsshFunctions::name> name;
HVD_LIBSSH_FUNCTIONS(HVD_LIBSSH_CALL)
#undef HVD_LIBSSH_CALL

template <auto Free>
struct Freed {
  template <typename T>
  void operator()(T* thing) const {
    Free(thing);
  }
};
using SessionPtr = std::unique_ptr<ssh_session_struct, Freed<ssh_free>>;
using EventPtr = std::unique_ptr<ssh_event_struct, Freed<ssh_event_free>>;
using KeyPtr = std::unique_ptr<ssh_key_struct, Freed<ssh_key_free>>;
using TextPtr = std::unique_ptr<char, Freed<ssh_string_free_char>>;

}  // namespace hvd::launcher
