#include "launcher/spawn/agent_delivery.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/files/elf_file.h"
#include "base/secrets/secret.h"
#include "base/text.h"

namespace hvd::launcher {

extern const char kPlaceAgent[];  // place_agent.sh

namespace {

// Limit of a login shell's output before the first marked line.
constexpr size_t kNoiseLimit = 64 << 10;
constexpr size_t kHashDigits = 32;
// Slurm's plugin auth/munge prints this text if no munged listens at its socket.
constexpr std::string_view kMungeIsDown = "Munge encode failed";
// srun prints these texts for a job number that ended minutes ago or never existed, and for one that has just ended.
constexpr std::string_view kJobIsUnknown = "Invalid job id specified";
constexpr std::string_view kJobHasEnded = "has expired";

// The stream after the marked line. First returns the bytes that were received together with that line.
class AgentStream : public Duplex {
 public:
  AgentStream(std::unique_ptr<Duplex> inner, std::string first)
      : inner_(std::move(inner)), first_(std::move(first)) {}

  net::Task<Result<size_t>> read_some(std::span<std::byte> buffer) override {
    if (first_.empty()) co_return co_await inner_->read_some(buffer);
    const size_t size = std::min(buffer.size(), first_.size());
    std::memcpy(buffer.data(), first_.data(), size);
    first_.erase(0, size);
    co_return size;
  }
  net::Task<Status> write(ByteView bytes) override { return inner_->write(bytes); }
  void close() override { inner_->close(); }
  std::string last_words() const override { return inner_->last_words(); }

 private:
  std::unique_ptr<Duplex> inner_;
  std::string first_;
};

// One run of the remote command.
struct Attempt {
  std::string who;  // the process that ended, for the error about a stream that ends too early
  std::string try_command;  // a command with which the user can test the shell
  std::unique_ptr<Duplex> stream;
  std::string mark;
  std::string text;  // text that was read but not used
};

// Whether a shell (dash, bash, zsh) printed that it cannot start a process.
bool is_at_process_limit(std::string_view words) {
  return std::ranges::any_of(
      std::initializer_list<std::string_view>{"Cannot fork", "fork: ", "fork failed"},
      [&](std::string_view each) { return words.find(each) != words.npos; });
}

Status no_marked_line(const Attempt& attempt, bool ended) {
  const std::string words = attempt.stream->last_words();
  const std::string noise = printable(one_line(attempt.text), 120);
  if (!ended) {
    return failed_precondition(cat("the login shell's start-up files print more than ",
                                   kNoiseLimit >> 10,
                                   " KiB before the agent can start, beginning "
                                   "with '",
                                   noise, "'"));
  }
  if (words.find(kMungeIsDown) != std::string::npos) {
    return failed_precondition(cat(
        "srun cannot reach MUNGE, which authenticates Slurm's users, on the machine where "
        "horovodrun runs; start munged there (systemctl start munge), or name hosts by -H to reach "
        "them by ssh; srun printed: ",
        words));
  }
  const bool is_unknown = words.find(kJobIsUnknown) != std::string::npos;
  if (is_unknown || words.find(kJobHasEnded) != std::string::npos) {
    return failed_precondition(cat(
        "SLURM_JOB_ID names a job that ", is_unknown ? "Slurm does not know" : "has ended", " (",
        words, "); unset SLURM_JOB_ID if it is left of an earlier job, or name hosts with -H"));
  }
  std::string why = words;
  if (!noise.empty()) why += cat(why.empty() ? "" : "; ", "it printed '", noise, "'");
  // A startup file that ends the shell prints no message.
  const bool is_silent = noise.empty() && (words.empty() || words.starts_with("ended with "));
  if (is_silent && !attempt.try_command.empty()) {
    return failed_precondition(
        cat(attempt.who, " ended before the agent could start, ", words.empty() ? "" : words + ", ",
            "and printed nothing: ~/.bashrc or another start file of that shell may exit; run '",
            attempt.try_command, "' to see it"));
  }
  if (why.empty()) why = "it printed nothing";
  if (is_at_process_limit(words)) why += "; raise nproc in /etc/security/limits.conf there";
  return failed_precondition(cat(attempt.who, " ended before the agent could start: ", why));
}

net::Task<Result<std::string>> next_marked_line(Attempt& attempt) {
  for (;;) {
    if (auto line = find_marked_line(attempt.text, attempt.mark)) {
      attempt.text.erase(0, line->end);
      co_return std::move(line->words);
    }
    if (attempt.text.size() > kNoiseLimit) co_return no_marked_line(attempt, false);
    std::array<std::byte, 4096> buffer;
    const Result<size_t> size = co_await attempt.stream->read_some(buffer);
    if (!size.ok()) co_return size.status();
    if (*size == 0) co_return no_marked_line(attempt, true);
    attempt.text += as_text({buffer.data(), *size});
  }
}

std::string_view take_word(std::string_view& words) {
  const size_t end = std::min(words.find(' '), words.size());
  const std::string_view word = words.substr(0, end);
  words.remove_prefix(std::min(end + 1, words.size()));
  return word;
}

// Quotes a word so that sh, csh and fish parse it equally: between single quotes, csh replaces !
// and fish interprets \\ and \'.
std::string quote_for_any_shell(std::string_view word) {
  std::string quoted = "'";
  for (const char c : word) {
    const bool is_special = c == '\'' || c == '\\' || c == '!';
    quoted += is_special ? cat("'\\", std::string(1, c), "'") : std::string(1, c);
  }
  return quoted + "'";
}

Status refusal(std::string_view verdict, std::string_view rest, const AgentFile& agent,
               const std::string& tried) {
  if (verdict == "arch") {
    return failed_precondition(cat("its architecture is ", printable(rest),
                                   ", and the agent of this build is for ", agent.machine));
  }
  while (rest.ends_with(' ') || rest.ends_with(';')) rest.remove_suffix(1);
  const std::string all = tried.empty() ? std::string(rest) : cat(tried, "; ", rest);
  return failed_precondition(cat("no directory there can keep the agent (",
                                 printable(one_line(all), 600),
                                 "): name one by HOROVOD_AGENT_DIR"));
}

}  // namespace

Result<std::shared_ptr<const AgentFile>> AgentFile::load(const std::string& path) {
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);  // fails unless it is a file
  if (error) return not_found(cat("cannot read the agent ", path, ": ", error.message()));
  auto file = std::make_shared<AgentFile>();
  file->content.resize(size);
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(file->content.data()),
          static_cast<std::streamsize>(file->content.size()));
  if (!in) return system_error(cat("cannot read the agent ", path), errno);
  file->name = "horovod-agent-" + to_hex(sha256(file->content)).substr(0, kHashDigits);
  file->machine = machine_of_elf(file->content);
  return std::shared_ptr<const AgentFile>(std::move(file));
}

std::optional<MarkedLine> find_marked_line(std::string_view text, std::string_view mark) {
  // The command has no blank after its mark, so a shell's echo of the command does not match.
  const std::string marked = cat(mark, " ");
  for (size_t begin = 0; begin < text.size();) {
    const size_t newline = text.find('\n', begin);
    if (newline == std::string_view::npos) return {};
    std::string_view line = text.substr(begin, newline - begin);
    // Shell output without a newline may precede the mark.
    const size_t at = line.find(marked);
    if (at != std::string_view::npos) {
      line.remove_prefix(at + marked.size());
      return MarkedLine{std::string(trim(line)), newline + 1};
    }
    begin = newline + 1;
  }
  return {};
}

std::string agent_command(const AgentFile& agent, std::string_view directory,
                          std::string_view refused, std::string_view mark) {
  // The mark is the last word, without a blank after it, so that find_marked_line() does not match
  // a shell's echo of the command.
  return cat("exec /bin/sh -c '", kPlaceAgent, "' sh ", agent.name, " ", agent.content.size(), " ",
             quote_for_any_shell(agent.machine), " ", quote_for_any_shell(directory), " ",
             quote_for_any_shell(refused), " ", mark);
}

net::Task<Result<std::unique_ptr<Duplex>>> start_agent(RemoteShell& shell,
                                                       std::shared_ptr<const AgentFile> agent,
                                                       std::string directory,
                                                       std::function<void(SpawnStage)> on_stage) {
  std::string refused;  // directories, separated by colons
  std::string tried;    // the reasons of their failures
  for (;;) {
    on_stage(SpawnStage::kSendAgent);
    Attempt attempt;
    attempt.who = shell.who_ended();
    attempt.try_command = shell.try_command();
    attempt.mark = "horovod:" + random_hex(8);
    auto stream = co_await shell.run(agent_command(*agent, directory, refused, attempt.mark));
    if (!stream.ok()) co_return stream.status();
    attempt.stream = std::move(*stream);

    Result<std::string> line = co_await next_marked_line(attempt);
    if (!line.ok()) co_return line.status();
    std::string_view rest = *line;
    std::string_view verdict = take_word(rest);
    if (verdict == "want") {
      const Status sent = co_await attempt.stream->write(agent->content);
      line = co_await next_marked_line(attempt);
      if (!line.ok()) co_return sent.ok() ? line.status() : sent.with_context("sending the agent");
      rest = *line;
      verdict = take_word(rest);
    }
    if (verdict == "run") {
      on_stage(SpawnStage::kStartAgent);
      on_stage(SpawnStage::kReady);
      co_return std::make_unique<AgentStream>(std::move(attempt.stream), std::move(attempt.text));
    }
    if (verdict != "fail") co_return refusal(verdict, rest, *agent, tried);
    // Try the next directory. Standard error has the reason of the failure (disk full, quota).
    std::array<std::byte, 256> buffer;
    for (;;) {
      const Result<size_t> size = co_await attempt.stream->read_some(buffer);
      if (!size.ok() || *size == 0) break;
    }
    refused += cat(refused.empty() ? ":" : "", rest, ":");
    tried += cat(tried.empty() ? "" : "; ", rest, ": ", attempt.stream->last_words());
  }
}

}  // namespace hvd::launcher
