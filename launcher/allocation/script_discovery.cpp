#include "launcher/allocation/script_discovery.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/names/name_ranges.h"
#include "base/text.h"
#include "net/notification.h"

namespace hvd::launcher {
namespace {

constexpr size_t kMaxWarnings = 20;
constexpr size_t kMaxMentions = kMaxNames;  // limits the time for lines with ranges

// Returns whether the name is a missing value in the spelling of jq, Python or JavaScript.
bool is_missing_value(std::string_view name) {
  const std::string word = to_lower(name);
  return word == "null" || word == "none" || word == "nil" || word == "undefined";
}

class OutputReader {
 public:
  explicit OutputReader(int slots_alone) : slots_alone_(slots_alone) {}

  void read(std::string_view text) {
    HostfileLines lines(text);
    while (mentions_ <= kMaxMentions && lines.next()) {
      number_ = lines.number();
      const std::string_view content = lines.content();
      bool is_empty = true;
      for (const std::string_view part : split_outside_brackets(content)) {
        const std::string_view item = trim(part);
        if (item.empty()) continue;
        is_empty = false;
        has_words_ = true;
        has_answer_ |= item.ends_with(":0") || item.ends_with("slots=0");
        if (const Status status = read_item(item); !status.ok()) skip(item, status.message());
      }
      if (is_empty) skip(content, "it names no host");
    }
    if (lines.open_comment() != 0) {
      warn(cat("the comment that begins with /* in line ", lines.open_comment(), " has no */"));
    }
  }

  DiscoveryOutput take() {
    output_.is_error = has_words_ && !has_answer_ && output_.hosts.empty();
    if (unreported_ > 0)
      output_.warnings.push_back(cat("and ", unreported_, " more such warnings"));
    return std::move(output_);
  }

 private:
  Status read_item(std::string_view text) {
    const auto words = words_of(text);
    std::set<std::string> more;
    HVD_ASSIGN_OR_RETURN(const HostItem item, parse_host_words(words, more));
    for (const std::string& word : more) {
      if (unknown_.insert(word).second) {
        warn(cat("line ", number_, ": the word '", word, "' is unknown and has no effect"));
      }
    }
    for (const std::string& name : item.names) {
      if (is_missing_value(name)) {
        return invalid_argument(cat("'", name, "' stands for a missing value"));
      }
      if (++mentions_ > kMaxMentions) {
        return invalid_argument(
            cat("the output names hosts more than ", kMaxMentions, " times; the rest is ignored"));
      }
      HVD_RETURN_IF_ERROR(
          add({name, item.user, item.slots ? item.slots : slots_alone_, item.port}));
    }
    return {};
  }

  Status add(Host host) {
    const auto [known, is_new] = index_.emplace(host.name, output_.hosts.size());
    const int64_t earlier_slots = is_new ? 0 : output_.hosts[known->second].slots;
    if (total_ + host.slots - earlier_slots > kMaxSlots) {
      if (is_new) index_.erase(known);
      return invalid_argument(cat("all hosts would have more than ", kMaxSlots, " slots"));
    }
    total_ += host.slots - earlier_slots;
    if (is_new) {
      output_.hosts.push_back(std::move(host));
      return {};
    }
    Host& earlier = output_.hosts[known->second];
    if (earlier.slots != host.slots) {
      warn(cat("line ", number_, " gives host ", host.name, " ", host.slots,
               " slots, an earlier line ", earlier.slots, "; the last line counts"));
    } else if (earlier.user != host.user) {
      warn(cat("line ", number_, " gives host ", host.name,
               " another user than an earlier line; the last line counts"));
    } else if (earlier.port != host.port) {
      warn(cat("line ", number_, " gives host ", host.name,
               " another port than an earlier line; the last line counts"));
    }
    earlier = std::move(host);
    return {};
  }

  void skip(std::string_view item, std::string_view reason) {
    warn(cat("'", printable(item), "' in line ", number_, " is skipped: ", reason));
  }

  void warn(std::string sentence) {
    if (output_.warnings.size() < kMaxWarnings) {
      output_.warnings.push_back(std::move(sentence));
    } else {
      ++unreported_;
    }
  }

  const int slots_alone_;
  DiscoveryOutput output_;
  std::map<std::string, size_t, std::less<>> index_;  // host name -> index in output_.hosts
  int64_t total_ = 0;                                 // sum of slots
  std::set<std::string> unknown_;                     // words that already have a warning
  size_t number_ = 0;                                 // line number
  size_t mentions_ = 0;                               // number of times that lines name a host
  size_t unreported_ = 0;                             // number of dropped warnings
  bool has_words_ = false;
  bool has_answer_ = false;  // a line has named a host, even a host without slots
};

}  // namespace

DiscoveryOutput parse_discovery_output(std::string_view text, int slots_alone) {
  OutputReader reader(slots_alone);
  reader.read(text);
  return reader.take();
}

namespace asio = net::asio;

namespace {

constexpr std::string_view kTag = "[discovery]<stderr>:";

// Limits repetitions of the same sentence. Also refuses new sentences while too many different ones are recent.
class Repetition {
 public:
  explicit Repetition(std::chrono::milliseconds quiet_time) : quiet_time_(quiet_time) {}

  bool may_report(std::string_view text, Clock::time_point now) {
    constexpr size_t kMostTexts = 200;
    std::erase_if(sent_, [&](const auto& entry) { return now - entry.second >= quiet_time_; });
    if (sent_.size() >= kMostTexts) return false;
    return sent_.emplace(text, now).second;
  }

 private:
  const std::chrono::milliseconds quiet_time_;
  std::map<std::string, Clock::time_point, std::less<>> sent_;
};

}  // namespace

// Each coroutine has a shared_ptr to this state as an argument, so the state outlives the ScriptDiscovery until all
// coroutines have returned.
struct ScriptDiscovery::State {
  State(asio::any_io_executor executor, DiscoveryScript from, DiscoveryCallbacks to)
      : executor(executor),
        script(std::move(from)),
        callbacks(std::move(to)),
        wake(executor),
        idle(executor),
        warnings(script.quiet_time),
        lines(script.quiet_time) {}

  std::string name() const {
    return cat("host discovery script '", printable(script.command), "'");
  }

  void warn(std::string_view kind, std::string_view sentence) {
    if (is_stopped || !callbacks.warn || !warnings.may_report(kind, Clock::now())) return;
    callbacks.warn(sentence);
  }

  void show(std::string_view line) {
    if (is_stopped || !callbacks.show || !lines.may_report(line, Clock::now())) return;
    callbacks.show(cat(kTag, line));
  }

  // Counts a running coroutine, so that stop() can wait until it has returned.
  class Running {
   public:
    explicit Running(State& state) : state_(state) { ++state_.running; }
    ~Running() {
      if (--state_.running == 0) state_.idle.notify();
    }
    Running(const Running&) = delete;
    Running& operator=(const Running&) = delete;

   private:
    State& state_;
  };

  // Runs the script once. The message of an error is one sentence.
  static net::Task<Result<std::vector<Host>>> ask(std::shared_ptr<State> state) {
    // A killed run may outlive this state, so its callback has a weak_ptr.
    auto started = ScriptRun::start(state->executor, state->script.command, state->script.limits,
                                    [weak = std::weak_ptr(state)](std::string_view line) {
                                      if (const auto alive = weak.lock()) alive->show(line);
                                    });
    if (!started.ok()) co_return started.status().with_context(state->name());
    state->run = *std::move(started);
    const ScriptAnswer answer = co_await state->run->end();
    state->run.reset();
    if (state->is_stopped) co_return aborted(cat(state->name(), " was stopped"));
    if (!answer.is_good()) co_return unavailable(state->failure_of(answer));
    co_return state->hosts_of(answer);
  }

  Result<std::vector<Host>> hosts_of(const ScriptAnswer& answer) {
    if (answer.is_cut) {
      warn("cut", cat(name(), " printed more than ", script.limits.output >> 10,
                      " KiB; the rest is ignored"));
    }
    DiscoveryOutput output = parse_discovery_output(answer.output, script.slots_alone);
    // The output is most likely an error message, although the script has exited with code 0.
    if (output.is_error) {
      return unavailable(cat(name(), ": no line of its output names a host; ",
                             output.warnings.empty() ? "" : output.warnings.front()));
    }
    for (const std::string& warning : output.warnings) warn(warning, cat(name(), ": ", warning));
    return std::move(output.hosts);
  }

  std::string failure_of(const ScriptAnswer& answer) const {
    if (answer.is_late) {
      return cat(name(), " took more than ",
                 std::chrono::duration<double>(script.limits.time).count(), " s and was killed");
    }
    return cat(name(), ": ", answer.last_words);
  }

  static net::Task<Result<std::vector<Host>>> first(std::shared_ptr<State> state) {
    if (state->is_stopped) co_return aborted(cat(state->name(), " was stopped"));
    const Running counted(*state);
    auto hosts = co_await ask(state);
    if (hosts.ok()) state->newest = *hosts;
    co_return hosts;
  }

  static net::Task<void> poll(std::shared_ptr<State> state) {
    const Running counted(*state);
    while (!state->is_stopped) {
      co_await state->wake.wait_until(Clock::now() + state->script.pause);
      if (state->is_stopped) break;
      auto hosts = co_await ask(state);
      if (!state->is_stopped) state->take(std::move(hosts));
    }
  }

  void take(Result<std::vector<Host>> hosts) {
    if (!hosts.ok()) {
      warn("failure", cat(hosts.status().message(), "; the job keeps its present hosts"));
    } else if (!newest || *newest != *hosts) {
      newest = *std::move(hosts);
      on_changed(*newest);
    }
  }

  static net::Task<void> wait_for_end(std::shared_ptr<State> state) {
    bool is_cancelled = false;
    while (state->running > 0 && !is_cancelled) is_cancelled = !co_await state->idle.wait();
  }

  void stop() {
    is_stopped = true;
    if (run) run->kill();
    wake.notify();
  }

  const asio::any_io_executor executor;
  const DiscoveryScript script;
  const DiscoveryCallbacks callbacks;
  Changed on_changed;
  net::Notification wake;  // ends the pause of poll()
  net::Notification idle;  // wakes stop() when no coroutine runs
  Repetition warnings, lines;
  std::unique_ptr<ScriptRun> run;
  std::optional<std::vector<Host>> newest;
  int running = 0;  // number of running coroutines of first() and poll()
  bool is_stopped = false;
};

ScriptDiscovery::ScriptDiscovery(asio::any_io_executor executor, DiscoveryScript script,
                                 DiscoveryCallbacks callbacks)
    : state_(
          std::make_shared<State>(std::move(executor), std::move(script), std::move(callbacks))) {}

ScriptDiscovery::~ScriptDiscovery() { state_->stop(); }

net::Task<Result<std::vector<Host>>> ScriptDiscovery::first() { return State::first(state_); }

void ScriptDiscovery::watch(Changed on_changed) {
  if (state_->is_stopped) return;
  state_->on_changed = std::move(on_changed);
  asio::co_spawn(state_->executor, State::poll(state_), [](std::exception_ptr error) {
    if (error) std::rethrow_exception(error);
  });
}

net::Task<void> ScriptDiscovery::stop() {
  state_->stop();
  return State::wait_for_end(state_);
}

}  // namespace hvd::launcher
