#include "launcher/protocol/protocol.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "base/wire/value_bytes.h"
#include "horovod/version.h"

namespace hvd::launcher {

namespace {

bool is_duration(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

Status check(const HostJob& job) {
  if (job.command.empty()) return invalid_argument("the job has no command");
  if (job.ranks.size() > kMaxRanks) {
    return invalid_argument(
        cat("the job has ", job.ranks.size(), " ranks on one host, more than ", kMaxRanks));
  }
  if (!is_duration(job.lease_seconds) || !is_duration(job.hold_after_seconds) ||
      !is_duration(job.kill_grace_seconds) || !is_duration(job.leave_grace_seconds)) {
    return invalid_argument("the job's heartbeat timeout or grace is not a number of seconds");
  }
  if (job.end_signal != SIGTERM && job.end_signal != SIGINT) {
    return invalid_argument(
        cat("the job's end signal ", job.end_signal, " is neither SIGTERM nor SIGINT"));
  }
  return {};
}
Status check(const Prepare& order) { return check(order.job); }
Status check(const End& order) {
  if (is_duration(order.grace_seconds)) return {};
  return invalid_argument("the grace of an order to end is not a number of seconds");
}
Status check(const Pong& answer) {
  if (is_duration(answer.silent_seconds)) return {};
  return invalid_argument("the silence in an answer to a ping is not a number of seconds");
}
Status check(const EndRank& order) {
  if (is_duration(order.grace_seconds)) return {};
  return invalid_argument("the grace of an order to end a rank is not a number of seconds");
}
Status check(const Run& order) {
  return order.command.empty() ? invalid_argument("a command to run has no words") : Status();
}
Status check(const OpenSession& session) {
  if (is_duration(session.wait_seconds)) return {};
  return invalid_argument("the wait of a session is not a number of seconds");
}
template <typename T>
Status check(const T&) {
  return {};
}

template <typename T>
Status read(ByteReader& reader, T& message) {
  get(reader, message);
  HVD_RETURN_IF_ERROR(reader.finish(T::kType.name));
  return check(message);
}

// Another release may have other fields after the version.
Status read(ByteReader& reader, AgentHello& hello) {
  ByteReader ahead = reader;
  get(ahead, hello.version);
  if (!ahead.failed() && !is_same_release(hello.version, HVD_VERSION)) return {};
  return read<AgentHello>(reader, hello);
}

template <typename... T>
constexpr bool has_distinct_kinds(std::type_identity<std::variant<T...>>) {
  std::array<uint16_t, sizeof...(T)> kinds{T::kType.kind...};
  std::sort(kinds.begin(), kinds.end());
  return std::adjacent_find(kinds.begin(), kinds.end()) == kinds.end();
}
static_assert(has_distinct_kinds(std::type_identity<Message>()));

// Reads the message of this kind; nullopt if the kind is unknown.
template <typename... T>
std::optional<Result<Message>> read_kind(uint16_t kind, ByteReader& reader,
                                         std::type_identity<std::variant<T...>>) {
  Message message;
  Status status;
  const bool is_known =
      ((kind == T::kType.kind && (status = read(reader, message.emplace<T>()), true)) || ...);
  if (!is_known) return {};
  if (!status.ok()) return status;
  return Result<Message>(std::move(message));
}

}  // namespace

Bytes encode(const Message& message) {
  ByteWriter writer;
  std::visit(
      [&]<typename T>(const T& each) {
        writer.put(T::kType.kind);
        put(writer, each);
      },
      message);
  return writer.take();
}

Result<Message> decode(ByteView bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.get<uint16_t>();
  if (reader.failed()) return invalid_argument("a control message is cut short");
  auto message = read_kind(kind, reader, std::type_identity<Message>());
  if (message) return *std::move(message);
  return unimplemented(
      cat("a control message of the unknown kind ", kind, ": the far side is of another release"));
}

Status check_agent_version(std::string_view version) {
  if (is_same_release(version, HVD_VERSION)) return {};
  return failed_precondition(cat(
      "its agent is horovod-agent ", printable(version), ", and this launcher is horovodrun ",
      HVD_VERSION, "; start horovod-agent of version ", release_of(HVD_VERSION), " on that host"));
}

Digest next_digest(const Digest& before, const StagePart& part) {
  const Bytes bytes = encode(part);
  ByteWriter both;
  both.put_raw(before).put_raw(bytes);
  return sha256(both.take());
}

uint32_t output_stream(size_t index, OutputStream stream) {
  HVD_CHECK(index < kMaxRanks);
  return kFirstOutputStream + static_cast<uint32_t>(index) * 2 +
         (stream == OutputStream::kStderr ? 1 : 0);
}

}  // namespace hvd::launcher
