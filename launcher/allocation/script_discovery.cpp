#include "launcher/allocation/script_discovery.h"

#include <map>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "launcher/allocation/discovery_output.h"
#include "net/notification.h"

namespace hvd::launcher {

namespace asio = net::asio;

namespace {

constexpr std::string_view kTag = "[discovery]<stderr>:";

// Limits repetitions of the same sentence. Bounded: after too many different sentences, it lets no sentence pass.
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
    // The script printed an error message of another program and exited with code 0.
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
