#include "launcher/protocol/protocol.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <type_traits>

#include "base/check.h"
#include "base/text.h"
#include "base/words.h"
#include "horovod/version.h"
#include "launcher/protocol/value_bytes.h"

namespace hvd::launcher {

namespace {

// Written on the wire: a number is never given to another message.
enum class Kind : uint16_t {
  kHello = 1,
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
  kTestReachability = 18,
  kReachabilityTested = 19,
  kInput = 20,
  kInputTaken = 21,
  kInspect = 22,
  kInspected = 23,
  kJoined = 24,
  kRun = 25,
  kRan = 26,
  kStagePart = 27,
  kStaged = 28,
  kSaid = 29,
  kSaidTaken = 30,
  kStopRun = 31,
  kEnding = 32,
  kSignalled = 33,
  kSession = 34,
  kReattach = 35,
  kResume = 36,
  kResumed = 37,
  kEndRank = 38,
  kLeaving = 39,
};

// The fields of each message, in their order on the wire, once for both directions.
template <typename F>
void fields(F f, AgentHello& m) {
  f(m.version), f(m.build), f(m.pid), f(m.hostname), f(m.machine), f(m.uid), f(m.cpus);
}
template <typename F>
void fields(F f, Prepare& m) {
  f(m.job), f(m.output_credit), f(m.store_credit);
}
template <typename F>
void fields(F f, Start& m) {
  f(m.order);
}
template <typename F>
void fields(F f, Signal& m) {
  f(m.number);
}
template <typename F>
void fields(F f, End& m) {
  f(m.grace_seconds), f(m.signal);
}
template <typename F>
void fields(F f, EndRank& m) {
  f(m.rank), f(m.grace_seconds);
}
template <typename F>
void fields(F f, Ping& m) {
  f(m.number);
}
template <typename F>
void fields(F, Suspend&) {}
template <typename F>
void fields(F f, Prepared& m) {
  f(m.status), f(m.candidates), f(m.versions), f(m.threads);
}
template <typename F>
void fields(F f, Started& m) {
  f(m.status);
}
template <typename F>
void fields(F f, Exited& m) {
  f(m.exit);
}
template <typename F>
void fields(F f, Finished& m) {
  f(m.left_behind);
  f(m.is_independent);
}
template <typename F>
void fields(F f, Pong& m) {
  f(m.number);
}
template <typename F>
void fields(F, Suspended&) {}
template <typename F>
void fields(F f, Failed& m) {
  f(m.sentence);
}
template <typename F>
void fields(F f, Challenge& m) {
  f(m.nonce);
}
template <typename F>
void fields(F f, Answer& m) {
  f(m.nonce), f(m.name), f(m.proof), f(m.version);
}
template <typename F>
void fields(F f, Admission& m) {
  f(m.proof);
}
template <typename F>
void fields(F f, TestReachability& m) {
  f(m.candidates);
}
template <typename F>
void fields(F f, ReachabilityTested& m) {
  f(m.reached);
}
template <typename F>
void fields(F f, Input& m) {
  f(m.rank), f(m.bytes);
}
template <typename F>
void fields(F f, InputTaken& m) {
  f(m.rank), f(m.size);
}
template <typename F>
void fields(F f, Inspect& m) {
  f(m.number), f(m.detail);
}
template <typename F>
void fields(F f, Inspected& m) {
  f(m.number), f(m.text);
}
template <typename F>
void fields(F f, Joined& m) {
  f(m.rank), f(m.world_rank), f(m.world_size), f(m.start), f(m.ranks), f(m.has_met);
}

template <typename F>
void fields(F f, Run& m) {
  f(m.number), f(m.rank), f(m.ranks), f(m.command);
}
template <typename F>
void fields(F f, StagePart& m) {
  f(m.kind), f(m.mode), f(m.path), f(m.bytes);
}
template <typename F>
void fields(F f, Staged& m) {
  f(m.taken), f(m.status);
}
template <typename F>
void fields(F f, Ran& m) {
  f(m.number), f(m.rank), f(m.code), f(m.signal), f(m.why);
}
template <typename F>
void fields(F f, Said& m) {
  f(m.number), f(m.rank), f(m.is_error), f(m.bytes);
}
template <typename F>
void fields(F f, SaidTaken& m) {
  f(m.number), f(m.size);
}
template <typename F>
void fields(F f, StopRun& m) {
  f(m.number);
}
template <typename F>
void fields(F f, Leaving& m) {
  f(m.sentence);
}
template <typename F>
void fields(F f, Ending& m) {
  f(m.sentence);
}
template <typename F>
void fields(F f, Signalled& m) {
  f(m.number);
}
template <typename F>
void fields(F f, OpenSession& m) {
  f(m.key), f(m.wait_seconds);
}
template <typename F>
void fields(F f, Reattach& m) {
  f(m.session), f(m.nonce);
}
template <typename F>
void fields(F f, Resume& m) {
  f(m.session), f(m.nonce), f(m.received), f(m.proof);
}
template <typename F>
void fields(F f, Resumed& m) {
  f(m.received), f(m.proof);
}

Kind kind_of(const AgentHello&) { return Kind::kHello; }
Kind kind_of(const Prepare&) { return Kind::kPrepare; }
Kind kind_of(const Start&) { return Kind::kStart; }
Kind kind_of(const Signal&) { return Kind::kSignal; }
Kind kind_of(const End&) { return Kind::kEnd; }
Kind kind_of(const EndRank&) { return Kind::kEndRank; }
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
Kind kind_of(const TestReachability&) { return Kind::kTestReachability; }
Kind kind_of(const ReachabilityTested&) { return Kind::kReachabilityTested; }
Kind kind_of(const Input&) { return Kind::kInput; }
Kind kind_of(const InputTaken&) { return Kind::kInputTaken; }
Kind kind_of(const Inspect&) { return Kind::kInspect; }
Kind kind_of(const Inspected&) { return Kind::kInspected; }
Kind kind_of(const Joined&) { return Kind::kJoined; }
Kind kind_of(const Run&) { return Kind::kRun; }
Kind kind_of(const StagePart&) { return Kind::kStagePart; }
Kind kind_of(const Staged&) { return Kind::kStaged; }
Kind kind_of(const Ran&) { return Kind::kRan; }
Kind kind_of(const Said&) { return Kind::kSaid; }
Kind kind_of(const SaidTaken&) { return Kind::kSaidTaken; }
Kind kind_of(const StopRun&) { return Kind::kStopRun; }
Kind kind_of(const Leaving&) { return Kind::kLeaving; }
Kind kind_of(const Ending&) { return Kind::kEnding; }
Kind kind_of(const Signalled&) { return Kind::kSignalled; }
Kind kind_of(const OpenSession&) { return Kind::kSession; }
Kind kind_of(const Reattach&) { return Kind::kReattach; }
Kind kind_of(const Resume&) { return Kind::kResume; }
Kind kind_of(const Resumed&) { return Kind::kResumed; }

template <typename T>
Result<Message> decode_as(ByteReader& reader, std::string_view name) {
  T message;
  fields([&](auto& field) { get(reader, field); }, message);
  const Status status = reader.finish(name);
  if (!status.ok()) return status;
  return Message(std::move(message));
}

// Another release may have other fields behind the version.
Result<Message> decode_hello(ByteReader& reader) {
  ByteReader ahead = reader;
  AgentHello hello;
  get(ahead, hello.version);
  if (!ahead.failed() && !is_same_release(hello.version, HVD_VERSION)) {
    return Message(std::move(hello));
  }
  return decode_as<AgentHello>(reader, "a hello");
}

bool is_duration(double seconds) { return std::isfinite(seconds) && seconds >= 0; }

Status check(const HostJob& job) {
  if (job.command.empty()) return invalid_argument("the job has no command");
  if (job.ranks.size() > kMaxRanks) {
    return invalid_argument(
        cat("the job has ", job.ranks.size(), " ranks on one host, more than ", kMaxRanks));
  }
  if (!is_duration(job.lease_seconds) || !is_duration(job.kill_grace_seconds) ||
      !is_duration(job.leave_grace_seconds)) {
    return invalid_argument("the job's lease or grace is no number of seconds");
  }
  if (job.end_signal != SIGTERM && job.end_signal != SIGINT) {
    return invalid_argument(
        cat("the job's end signal ", job.end_signal, " is neither SIGTERM nor SIGINT"));
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

// One switch and no table: the compiler names a kind without a case (-Wswitch), and each row of a table would need
// a function of its own for the checks of that kind.
Result<Message> decode(ByteView bytes) {
  ByteReader reader(bytes);
  const auto kind = reader.get<Kind>();
  if (reader.failed()) return invalid_argument("a control message is cut short");
  switch (kind) {
    case Kind::kHello:
      return decode_hello(reader);
    case Kind::kPrepare: {
      auto message = decode_as<Prepare>(reader, "an order to prepare");
      if (message.ok()) {
        const Status status = check(std::get<Prepare>(*message).job);
        if (!status.ok()) return status;
      }
      return message;
    }
    case Kind::kPrepared:
      return decode_as<Prepared>(reader, "an answer about preparing");
    case Kind::kStart:
      return decode_as<Start>(reader, "an order to start");
    case Kind::kStarted:
      return decode_as<Started>(reader, "an answer about starting");
    case Kind::kExited:
      return decode_as<Exited>(reader, "a rank's end");
    case Kind::kFinished:
      return decode_as<Finished>(reader, "the job's end");
    case Kind::kSignal:
      return decode_as<Signal>(reader, "a signal");
    case Kind::kEnd: {
      auto message = decode_as<End>(reader, "an order to end");
      if (message.ok() && !is_duration(std::get<End>(*message).grace_seconds)) {
        return invalid_argument("the grace of an order to end is no number of seconds");
      }
      return message;
    }
    case Kind::kEndRank: {
      auto message = decode_as<EndRank>(reader, "an order to end a rank");
      if (message.ok() && !is_duration(std::get<EndRank>(*message).grace_seconds)) {
        return invalid_argument("the grace of an order to end a rank is no number of seconds");
      }
      return message;
    }
    case Kind::kPing:
      return decode_as<Ping>(reader, "a ping");
    case Kind::kPong:
      return decode_as<Pong>(reader, "a pong");
    case Kind::kSuspend:
      return decode_as<Suspend>(reader, "a suspension");
    case Kind::kSuspended:
      return decode_as<Suspended>(reader, "an answer to a suspension");
    case Kind::kFailed:
      return decode_as<Failed>(reader, "a failure");
    case Kind::kChallenge:
      return decode_as<Challenge>(reader, "a challenge");
    case Kind::kAnswer:
      return decode_as<Answer>(reader, "an answer to a challenge");
    case Kind::kAdmission:
      return decode_as<Admission>(reader, "an admission");
    case Kind::kTestReachability:
      return decode_as<TestReachability>(reader, "an order to test reachability");
    case Kind::kReachabilityTested:
      return decode_as<ReachabilityTested>(reader, "an answer about reachability");
    case Kind::kInput:
      return decode_as<Input>(reader, "a rank's input");
    case Kind::kInputTaken:
      return decode_as<InputTaken>(reader, "an answer to input");
    case Kind::kInspect:
      return decode_as<Inspect>(reader, "a question where ranks are");
    case Kind::kInspected:
      return decode_as<Inspected>(reader, "where ranks are");
    case Kind::kRun: {
      auto message = decode_as<Run>(reader, "a command to run");
      if (message.ok() && std::get<Run>(*message).command.empty()) {
        return invalid_argument("a command to run has no words");
      }
      return message;
    }
    case Kind::kStagePart:
      return decode_as<StagePart>(reader, "a part of the code");
    case Kind::kStaged:
      return decode_as<Staged>(reader, "an answer to a part of the code");
    case Kind::kRan:
      return decode_as<Ran>(reader, "a command's end");
    case Kind::kSaid:
      return decode_as<Said>(reader, "output of a command");
    case Kind::kSaidTaken:
      return decode_as<SaidTaken>(reader, "an acknowledgement of output of a command");
    case Kind::kStopRun:
      return decode_as<StopRun>(reader, "an order to stop a command");
    case Kind::kLeaving:
      return decode_as<Leaving>(reader, "an agent's wish to leave");
    case Kind::kEnding:
      return decode_as<Ending>(reader, "an agent's end");
    case Kind::kSignalled:
      return decode_as<Signalled>(reader, "a signal that ranks got");
    case Kind::kJoined:
      return decode_as<Joined>(reader, "a rank's world");
    case Kind::kSession: {
      auto message = decode_as<OpenSession>(reader, "a session");
      if (message.ok() && !is_duration(std::get<OpenSession>(*message).wait_seconds)) {
        return invalid_argument("the wait of a session is no number of seconds");
      }
      return message;
    }
    case Kind::kReattach:
      return decode_as<Reattach>(reader, "an order to hand over a connection");
    case Kind::kResume:
      return decode_as<Resume>(reader, "an offer to resume");
    case Kind::kResumed:
      return decode_as<Resumed>(reader, "an answer to an offer to resume");
  }
  return unimplemented(cat("a control message of the unknown kind ", static_cast<unsigned>(kind),
                           ": the far side is of another release"));
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
