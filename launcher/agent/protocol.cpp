#include "launcher/agent/protocol.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/check.h"
#include "base/text.h"

namespace hvd::launcher {

namespace {

// Written on the wire: a number is never given to another message.
enum class Kind : uint16_t {
  kGreeting = 1,
  kPrepare = 2,
  kPrepared = 3,
  kStart = 4,
  kStarted = 5,
  kExited = 6,
  kFinished = 7,
  kSignal = 8,
  kEnd = 9,
  kPing = 10,
  kPong = 11,
  kSuspend = 12,
  kSuspended = 13,
  kFailed = 14,
  kChallenge = 15,
  kAnswer = 16,
  kAdmission = 17,
};

using Variables = std::vector<std::pair<std::string, std::string>>;

void put(ByteWriter& to, const std::string& text) { to.put_text(text); }
void put(ByteWriter& to, const Proof& proof) { to.put_raw(proof); }
void put(ByteWriter& to, const Status& status) {
  to.put(static_cast<int32_t>(status.code())).put_text(status.message());
}
void put(ByteWriter& to, const Variables& variables) {
  to.put(static_cast<uint32_t>(variables.size()));
  for (const auto& [name, value] : variables) to.put_text(name).put_text(value);
}
template <typename T>
  requires std::is_arithmetic_v<T>
void put(ByteWriter& to, T number) {
  to.put(number);
}

void get(ByteReader& from, std::string& text) { text = from.get_text(); }
void get(ByteReader& from, Proof& proof) {
  const ByteView raw = from.get_raw(proof.size());
  std::copy(raw.begin(), raw.end(), proof.begin());
}
void get(ByteReader& from, Status& status) {
  const auto code = from.get<int32_t>();
  std::string sentence = from.get_text();
  const bool is_known = code >= 0 && code <= static_cast<int32_t>(Code::kInternal);
  status = Status(is_known ? static_cast<Code>(code) : Code::kInternal, std::move(sentence));
}
void get(ByteReader& from, Variables& variables) {
  const uint32_t count = from.get_count(8);
  for (uint32_t i = 0; i < count && !from.failed(); ++i) {
    std::string name = from.get_text();
    std::string value = from.get_text();
    variables.emplace_back(std::move(name), std::move(value));
  }
}
template <typename T>
  requires std::is_arithmetic_v<T>
void get(ByteReader& from, T& number) {
  number = from.get<T>();
}

void put(ByteWriter& to, const HostJob& job) {
  to.put(job.job).put(job.generation).put(job.host).put_text(job.host_name);
  to.put(static_cast<uint32_t>(job.command.size()));
  for (const std::string& word : job.command) to.put_text(word);
  to.put_text(job.working_directory);
  put(to, job.environment);
  to.put(static_cast<uint32_t>(job.ranks.size()));
  for (const RankSpec& spec : job.ranks) {
    to.put(static_cast<int32_t>(spec.rank));
    put(to, spec.environment);
  }
  to.put(job.lease_seconds).put(job.kill_grace_seconds);
  to.put(static_cast<uint8_t>(job.insecure_compat));
}
void get(ByteReader& from, HostJob& job) {
  job.job = from.get<uint64_t>();
  job.generation = from.get<uint32_t>();
  job.host = from.get<uint32_t>();
  job.host_name = from.get_text();
  const uint32_t words = from.get_count(4);
  for (uint32_t i = 0; i < words && !from.failed(); ++i) job.command.push_back(from.get_text());
  job.working_directory = from.get_text();
  get(from, job.environment);
  const uint32_t ranks = from.get_count(8);
  for (uint32_t i = 0; i < ranks && !from.failed(); ++i) {
    RankSpec spec;
    spec.rank = from.get<int32_t>();
    get(from, spec.environment);
    job.ranks.push_back(std::move(spec));
  }
  job.lease_seconds = from.get<double>();
  job.kill_grace_seconds = from.get<double>();
  job.insecure_compat = from.get<uint8_t>() != 0;
}

void put(ByteWriter& to, const RankExit& exit) {
  to.put(static_cast<int32_t>(exit.rank)).put(static_cast<int32_t>(exit.code));
  to.put(static_cast<int32_t>(exit.signal)).put(static_cast<uint8_t>(exit.by_agent));
}
void get(ByteReader& from, RankExit& exit) {
  exit.rank = from.get<int32_t>();
  exit.code = from.get<int32_t>();
  exit.signal = from.get<int32_t>();
  exit.by_agent = from.get<uint8_t>() != 0;
}

// The fields of each message, in their order on the wire, once for both directions.
template <typename F> void fields(F f, Greeting& m) {
  f(m.version), f(m.build), f(m.pid), f(m.hostname), f(m.boot_id), f(m.uid), f(m.cpus);
}
template <typename F> void fields(F f, Prepare& m) {
  f(m.job), f(m.output_credit), f(m.store_credit);
}
template <typename F> void fields(F, Start&) {}
template <typename F> void fields(F f, Signal& m) { f(m.number); }
template <typename F> void fields(F f, End& m) { f(m.grace_seconds); }
template <typename F> void fields(F f, Ping& m) { f(m.number); }
template <typename F> void fields(F, Suspend&) {}
template <typename F> void fields(F f, Prepared& m) { f(m.status); }
template <typename F> void fields(F f, Started& m) { f(m.status); }
template <typename F> void fields(F f, Exited& m) { f(m.exit); }
template <typename F> void fields(F f, Finished& m) { f(m.left_behind); }
template <typename F> void fields(F f, Pong& m) { f(m.number); }
template <typename F> void fields(F, Suspended&) {}
template <typename F> void fields(F f, Failed& m) { f(m.sentence); }
template <typename F> void fields(F f, Challenge& m) { f(m.nonce); }
template <typename F> void fields(F f, Answer& m) { f(m.nonce), f(m.name), f(m.proof); }
template <typename F> void fields(F f, Admission& m) { f(m.proof); }

Kind kind_of(const Greeting&) { return Kind::kGreeting; }
Kind kind_of(const Prepare&) { return Kind::kPrepare; }
Kind kind_of(const Start&) { return Kind::kStart; }
Kind kind_of(const Signal&) { return Kind::kSignal; }
Kind kind_of(const End&) { return Kind::kEnd; }
Kind kind_of(const Ping&) { return Kind::kPing; }
Kind kind_of(const Suspend&) { return Kind::kSuspend; }
Kind kind_of(const Prepared&) { return Kind::kPrepared; }
Kind kind_of(const Started&) { return Kind::kStarted; }
Kind kind_of(const Exited&) { return Kind::kExited; }
Kind kind_of(const Finished&) { return Kind::kFinished; }
Kind kind_of(const Pong&) { return Kind::kPong; }
Kind kind_of(const Suspended&) { return Kind::kSuspended; }
Kind kind_of(const Failed&) { return Kind::kFailed; }
Kind kind_of(const Challenge&) { return Kind::kChallenge; }
Kind kind_of(const Answer&) { return Kind::kAnswer; }
Kind kind_of(const Admission&) { return Kind::kAdmission; }

template <typename T>
Result<Message> decode_as(ByteReader& reader, std::string_view name) {
  T message;
  fields([&](auto& field) { get(reader, field); }, message);
  const Status status = reader.finish(name);
  if (!status.ok()) return status;
  return Message(std::move(message));
}

bool is_duration(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

Status check(const HostJob& job) {
  if (job.command.empty()) return invalid_argument("the job has no command");
  if (job.ranks.size() > kMaxRanks) {
    return invalid_argument(cat("the job has ", job.ranks.size(), " ranks on one host, more than ",
                                kMaxRanks));
  }
  if (!is_duration(job.lease_seconds) || !is_duration(job.kill_grace_seconds)) {
    return invalid_argument("the job's lease or grace is no number of seconds");
  }
  return {};
}

}  // namespace

Bytes encode(const Message& message) {
  ByteWriter writer;
  std::visit(
      [&](const auto& each) {
        writer.put(kind_of(each));
        // fields() serves reading too, and so takes what can be changed; nothing changes here.
        auto& mutable_message = const_cast<std::remove_cvref_t<decltype(each)>&>(each);
        fields([&](const auto& field) { put(writer, field); }, mutable_message);
      },
      message);
  return writer.take();
}

Result<Message> decode(ByteView bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.get<Kind>();
  if (reader.failed()) return invalid_argument("a control message is cut short");
  switch (kind) {
    case Kind::kGreeting: return decode_as<Greeting>(reader, "a greeting");
    case Kind::kPrepare: {
      auto message = decode_as<Prepare>(reader, "an order to prepare");
      if (message.ok()) {
        const Status status = check(std::get<Prepare>(*message).job);
        if (!status.ok()) return status;
      }
      return message;
    }
    case Kind::kPrepared: return decode_as<Prepared>(reader, "an answer about preparing");
    case Kind::kStart: return decode_as<Start>(reader, "an order to start");
    case Kind::kStarted: return decode_as<Started>(reader, "an answer about starting");
    case Kind::kExited: return decode_as<Exited>(reader, "a rank's end");
    case Kind::kFinished: return decode_as<Finished>(reader, "the job's end");
    case Kind::kSignal: return decode_as<Signal>(reader, "a signal");
    case Kind::kEnd: {
      auto message = decode_as<End>(reader, "an order to end");
      if (message.ok() && !is_duration(std::get<End>(*message).grace_seconds)) {
        return invalid_argument("the grace of an order to end is no number of seconds");
      }
      return message;
    }
    case Kind::kPing: return decode_as<Ping>(reader, "a ping");
    case Kind::kPong: return decode_as<Pong>(reader, "a pong");
    case Kind::kSuspend: return decode_as<Suspend>(reader, "a suspension");
    case Kind::kSuspended: return decode_as<Suspended>(reader, "an answer to a suspension");
    case Kind::kFailed: return decode_as<Failed>(reader, "a failure");
    case Kind::kChallenge: return decode_as<Challenge>(reader, "a challenge");
    case Kind::kAnswer: return decode_as<Answer>(reader, "an answer to a challenge");
    case Kind::kAdmission: return decode_as<Admission>(reader, "an admission");
  }
  return unimplemented(cat("a control message of the unknown kind ", static_cast<unsigned>(kind),
                           ": the far side is of another release"));
}

uint32_t output_stream(size_t index, OutputStream stream) {
  HVD_CHECK(index < kMaxRanks);
  return kFirstOutputStream + static_cast<uint32_t>(index) * 2 +
         (stream == OutputStream::kStderr ? 1 : 0);
}

}  // namespace hvd::launcher
