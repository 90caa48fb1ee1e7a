#include "launcher/output/traceback_folder.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/output/traceback.h"

using namespace hvd;
using namespace hvd::launcher;
using namespace std::chrono_literals;

namespace {

constexpr TracebackFolder::End kFailed{.is_failure = true};
constexpr TracebackFolder::End kKilled{.is_failure = true, .is_mute = true};
constexpr TracebackFolder::End kEndedByAgent{.is_mute = true};

const std::string kBegin = "Traceback (most recent call last):\n";
const std::string kProgram =
    "  File \"/home/me/train.py\", line 7, in <module>\n    hvd.allreduce(x)\n";
const std::string kOurs = "  File \"/v/horovod/_ops.py\", line 335, in _fail\n    raise error\n";
const std::string kError = kBegin + kProgram + "ValueError: sample 7 is empty\n";

std::string shut_down_by(int rank) {
  return cat(
      "horovod.exceptions.HorovodInternalError: allreduce 'x' cannot run: Horovod has been shut "
      "down: rank ",
      rank, " has ended its program or called shutdown before it was complete\n");
}

std::string consequence_of(int rank) { return kBegin + kProgram + kOurs + shut_down_by(rank); }
// Frames of Horovod are left out.
std::string shown_consequence_of(int rank) { return kBegin + kProgram + shut_down_by(rank); }

struct Stream {
  void write(int rank, const std::string& lines) {
    std::string tagged;
    for (size_t at = 0; at < lines.size();) {
      const size_t end = lines.find('\n', at) + 1;
      tagged += cat("[", rank, "]:", lines.substr(at, end - at));
      at = end;
    }
    shown[rank] += folder.add(rank, tagged, 4, false, now);
  }
  void end(int rank, TracebackFolder::End how) {
    folder.ended(rank, how);
    folder.output_ended(rank);
    take();
  }
  void fail(int rank, const std::string& lines, TracebackFolder::End how = kFailed) {
    write(rank, lines);
    end(rank, how);
  }
  void take(bool all = false) {
    for (const auto& each : folder.take(now, all)) shown[each.rank] += each.lines;
    if (const std::string sentence = folder.take_sentence(now, all); !sentence.empty())
      sentences += sentence + "\n";
  }
  // Returns the lines shown for a rank, without tags.
  std::string of(int rank) {
    std::string text = shown[rank];
    for (size_t at = 0; (at = text.find(cat("[", rank, "]:"), at)) != std::string::npos;)
      text.erase(at, 4);
    return text;
  }

  TracebackFolder folder;
  Clock::time_point now{};
  std::map<int, std::string> shown;
  std::string sentences;
};

}  // namespace

TEST_CASE("the consequences of one failure are one sentence, and the failure is shown") {
  Stream stream;
  for (const int rank : {0, 2, 3, 4, 5}) stream.write(rank, "a warning\n");
  for (const int rank : {0, 2}) stream.fail(rank, consequence_of(1));
  CHECK(stream.of(0) == "a warning\n");
  stream.fail(1, kError);
  CHECK(stream.of(1) == kError);
  for (const int rank : {3, 4}) stream.fail(rank, consequence_of(1));
  stream.fail(5, consequence_of(1) + "another line\n", kEndedByAgent);
  stream.take(true);
  for (const int rank : {0, 2, 3, 4}) CHECK(stream.of(rank) == "a warning\n");
  CHECK(stream.of(5) == "a warning\nanother line\n");
  CHECK(stream.sentences == "ranks 0, 2-5 stopped because of rank 1\n");
}

TEST_CASE("a traceback is judged when it is complete, before its rank ends") {
  Stream stream;
  stream.write(1, kError);
  SUBCASE("its cause has written why it ends") {}
  SUBCASE("its cause has written other lines since") { stream.write(1, "a warning at the exit\n"); }
  SUBCASE("its cause has ended") { stream.end(1, kFailed); }
  stream.write(0, consequence_of(1));
  stream.write(2, consequence_of(0));
  stream.take();
  CHECK(stream.of(0) + stream.of(2) == "");
  stream.end(1, kFailed);
  for (const int rank : {0, 2}) stream.end(rank, kEndedByAgent);
  stream.now += kCaughtAfter;
  stream.take(true);
  CHECK(stream.of(0) + stream.of(2) == "");
  CHECK(stream.of(1).starts_with(kError));
  CHECK(stream.sentences == "ranks 0, 2 stopped because of rank 1\n");
}

TEST_CASE("the prefix of PyTorch hides no traceback") {
  const auto of_torch = [](int rank, const std::string& lines) {
    std::string prefixed;
    for (const std::string_view line : lines_of(lines))
      prefixed += cat("[rank", rank, "]: ", line, "\n");
    return prefixed;
  };
  Stream stream;
  for (const int rank : {0, 2}) stream.write(rank, of_torch(rank, consequence_of(1)));
  const std::string chained = kBegin + kProgram +
                              "KeyError: 3\n\nDuring handling of the above exception, another "
                              "exception occurred:\n\n" +
                              kError;
  stream.fail(1, of_torch(1, chained));
  stream.write(0, "a line of a thread\n");
  for (const int rank : {0, 2}) stream.end(rank, kEndedByAgent);
  stream.take(true);
  CHECK(stream.of(0) == "a line of a thread\n");
  CHECK(stream.of(2) == "");
  CHECK(stream.of(1) == of_torch(1, chained));
  CHECK(stream.sentences == "ranks 0, 2 stopped because of rank 1\n");
}

TEST_CASE("a chain of consequences names the first cause") {
  Stream stream;
  stream.fail(2, consequence_of(1));
  stream.fail(1, consequence_of(0));
  stream.fail(0, kError);
  stream.now += kHeldFor;
  stream.take();
  CHECK(stream.sentences == "ranks 1-2 stopped because of rank 0\n");
  CHECK(stream.of(2) + stream.of(1) == "");
}

TEST_CASE("other lines, other errors and a rank that goes on are shown") {
  Stream stream;
  stream.fail(1, kError);
  SUBCASE("an exception of the program") {
    stream.fail(0, kError);
    CHECK(stream.of(0) == kError);
  }
  SUBCASE("an error of the program during which Horovod's came") {
    const std::string text =
        kBegin + kProgram +
        "KeyError: 3\n\nDuring handling of the above exception, another exception occurred:\n\n";
    stream.fail(0, text + consequence_of(1));
    CHECK(stream.of(0) == text + shown_consequence_of(1));
  }
  SUBCASE("an error of Horovod that accuses none") {
    const std::string text =
        kBegin + kProgram +
        "horovod.exceptions.HorovodDisagreementError: Mismatched: [3] on rank 1\n";
    stream.fail(0, text);
    CHECK(stream.of(0) == text);
  }
  SUBCASE("an exception of the program with the words of Horovod's") {
    const std::string text =
        kBegin + kProgram + "RuntimeError: rank 1 on host a was lost: its process ended\n";
    stream.fail(0, text);
    CHECK(stream.of(0) == text);
  }
  SUBCASE("a traceback that the program has caught, before it ends well") {
    stream.fail(0, consequence_of(1), {.is_success = true});
    CHECK(stream.of(0) == consequence_of(1));
  }
  SUBCASE("a traceback of the program, and the lines after it, while the rank goes on") {
    stream.write(0, kError);
    CHECK(stream.of(0) == "");
    stream.write(0, "and on\n");
    CHECK(stream.of(0) == kError + "and on\n");
  }
  SUBCASE("the lines after a traceback at once, and the traceback if the rank goes on") {
    stream.write(0, consequence_of(1) + "and on\n");
    CHECK(stream.of(0) == "and on\n");
    stream.take();
    CHECK(stream.of(0) == "and on\n");
    stream.now += kCaughtAfter - 1ms;
    stream.take();
    CHECK(stream.of(0) == "and on\n");
    CHECK(stream.folder.deadline().time() == Clock::time_point{} + kCaughtAfter);
    stream.now += 1ms;
    stream.take();
    CHECK(stream.of(0) == "and on\n" + consequence_of(1));
    CHECK(stream.sentences == "rank 0 stopped because of rank 1\n");
    return;
  }
  SUBCASE("the first part of a traceback that takes long") {
    stream.write(0, kBegin + kProgram);
    stream.now += kHeldFor - 1ms;
    stream.take();
    CHECK(stream.of(0) == "");
    stream.now += 1ms;
    stream.take();
    CHECK(stream.of(0) == kBegin + kProgram);
  }
  SUBCASE("many lines") {
    std::string many = kBegin;
    for (size_t line = 1; line + 1 < kMaxHeldLines; ++line) many += "  line\n";
    stream.write(0, many);
    CHECK(stream.of(0) == "");
    stream.write(0, "last\n");
    CHECK(stream.of(0) == many + "last\n");
  }
  stream.take(true);
  CHECK(stream.sentences == "");
}

TEST_CASE(
    "a traceback that accuses a rank that has not failed is shown, with the frames of the program "
    "alone") {
  Stream stream;
  SUBCASE("it runs") {
    stream.fail(0, consequence_of(1));
    CHECK(stream.of(0) == "");
    stream.now += kHeldFor;
    stream.take();
  }
  SUBCASE("it has ended well") {
    stream.end(1, {.is_success = true});
    stream.fail(0, consequence_of(1));
  }
  SUBCASE("the launcher has ended it") {
    stream.end(1, kEndedByAgent);
    stream.fail(0, consequence_of(1));
  }
  CHECK(stream.of(0) == shown_consequence_of(1));
  stream.take(true);
  CHECK(stream.sentences == "");
}

TEST_CASE("where the cause has left no reason, one of its consequences is shown") {
  Stream stream;
  SUBCASE("a signal") { stream.fail(1, "a warning\n", kKilled); }
  SUBCASE("no output") { stream.end(1, kFailed); }
  for (const int rank : {0, 2, 3}) stream.fail(rank, consequence_of(1));
  stream.take(true);
  CHECK(stream.of(0) == shown_consequence_of(1));
  CHECK(stream.of(2) + stream.of(3) == "");
  CHECK(stream.sentences == "ranks 2-3 stopped because of rank 1\n");
}

TEST_CASE("the consequence to show waits for its rank's end, so that frames of Horovod go") {
  Stream stream;
  stream.end(1, kKilled);
  for (const int rank : {0, 2, 3}) stream.write(rank, consequence_of(1));
  stream.take();
  CHECK(stream.of(0) + stream.of(2) + stream.of(3) == "");
  SUBCASE("the first that ends is shown") {
    for (const int rank : {2, 0, 3}) stream.end(rank, kEndedByAgent);
    CHECK(stream.of(2) == shown_consequence_of(1));
    CHECK(stream.of(0) + stream.of(3) == "");
  }
  SUBCASE("none ends") {
    stream.now += kHeldFor;
    stream.take();
    CHECK(stream.of(0) == consequence_of(1));
    CHECK(stream.of(2) + stream.of(3) == "");
  }
}

TEST_CASE("one of several ranks that accuse each other is shown") {
  Stream stream;
  stream.fail(2, consequence_of(1));
  stream.fail(1, consequence_of(0));
  stream.fail(0, consequence_of(1));
  stream.take(true);
  int count = 0;
  for (const int rank : {0, 1, 2}) count += stream.of(rank).empty() ? 0 : 1;
  CHECK(count == 1);
  CHECK(stream.of(0) == shown_consequence_of(1));
  CHECK(stream.sentences == "ranks 1-2 stopped because of rank 0\n");
}

TEST_CASE("errors of frameworks with Horovod's message are consequences as well") {
  const std::string message =
      "allreduce.x: Horovod has been shut down: rank 1 has ended its program or called shutdown";
  const std::string graph =
      "tensorflow.python.framework.errors_impl.UnknownError: Graph execution error:\n\n"
      "Detected at node x_1 defined at (most recent call last):\n" +
      kProgram + "\nHorovodAllreduce f/x: " + message +
      "\n\t [[{{node x_1}}]] [Op:__inference_f_10]\n";
  const std::string jax = "jax.errors.JaxRuntimeError: INTERNAL: Horovod: " + message +
                          "\n--------------------\n"
                          "For simplicity, JAX has removed its internal frames from the traceback "
                          "of the following exception.\n";
  const std::string lost =
      "horovod.exceptions.HorovodInternalError: rank 1 on host b was lost: its process ended\n";
  for (const std::string& error : {graph, jax, lost}) {
    Stream stream;
    stream.fail(1, kError);
    stream.fail(0, kBegin + kProgram + error);
    CHECK(stream.of(0) == "");
  }
}

TEST_CASE("the rank that a message accuses is found") {
  CHECK(accused_by("rank 12 on host b was lost: its process ended") == 12);
  CHECK(accused_by("rank 0: rank 3 has ended its program or called shutdown") == 3);
  CHECK(accused_by("Mismatched: [3] on rank 0, [4] on rank 1") == std::nullopt);
  CHECK(accused_by("rank x on host") == std::nullopt);
  CHECK(accused_by("rank 99999999999999999999 was lost: its process ended") == std::nullopt);
}
