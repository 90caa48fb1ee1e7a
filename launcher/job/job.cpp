#include "launcher/job/job.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "base/check.h"
#include "base/log/log.h"
#include "base/text.h"
#include "launcher/job/job_state.h"
#include "launcher/output/report.h"
#include "launcher/plan/host_choice.h"
#include "launcher/plan/worker_env.h"

namespace hvd::launcher {
namespace {

uint64_t random_job() {
  uint64_t job = 0;
  while (job == 0) fill_random(std::as_writable_bytes(std::span(&job, 1)));
  return job;
}

// Each rank and each host costs descriptors, and the usual soft limit is 1,024.
void raise_descriptor_limit(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

JobLaunch::JobLaunch(const Options& options, const SlotPlan& plan, uint32_t generation,
                     JoinQueue* join_queue)
    : options_(options),
      plan_(plan),
      generation_(generation),
      join_queue_(join_queue),
      loop_(join_queue ? join_queue->loop() : own_loop_),
      grace_(options.settings.number("kill_grace")),
      end_signal_(to_lower(options.settings.text("end_signal")) == "int" ? SIGINT : SIGTERM),
      supervisor_(plan, to_lower(options.settings.text("on_failure")) == "wait"),
      secret_(join_queue ? join_queue->secret() : Secret::random()),
      job_(random_job()),
      signals_(loop_),
      changed_(loop_),
      give_up_(loop_),
      cause_(loop_),
      timeout_(loop_),
      progress_(loop_),
      local_(options.settings.flag("no_env")),
      by_command_(launch_agent(options.settings)),
      inspection_(loop_.get_executor(), plan.hosts.size(),
                  [this](size_t host, uint32_t number, bool with_stacks) {
                    if (host >= links_.size() || supervisor_.is_done(static_cast<int>(host))) {
                      return false;
                    }
                    links_[host]->inspect(number, with_stacks);
                    return true;
                  }),
      commands_(loop_.get_executor(), plan, [this](int rank, const Message& order) {
        const int host = plan_.slots[static_cast<size_t>(rank)].host;
        if (supervisor_.is_done(host)) return false;
        links_[static_cast<size_t>(host)]->pass(order);
        return true;
      }) {}

JobLaunch::~JobLaunch() = default;

JobEnd JobLaunch::run() {
  raise_descriptor_limit(64 + 8 * plan_.hosts.size() + 4 * plan_.slots.size());
  if (const Status status = find_places(); !status.ok()) return {.exit_code = refuse(status)};
  int exit_code = 0;
  net::asio::co_spawn(loop_, run_all(), [&](std::exception_ptr failure, int code) {
    if (failure) std::rethrow_exception(failure);
    exit_code = code;
    loop_.stop();
  });
  loop_.run();
  JobEnd end{.exit_code = exit_code, .has_started = !links_.empty()};
  const bool is_of_hosts = exit_code == kExitLauncher || exit_code == kExitBadInput;
  end.may_be_tried_again = !is_ended_by_user_ && (supervisor_.failed_rank() >= 0 ||
                                                  (is_of_hosts && !failed_hosts_.empty()));
  end.failed_hosts = std::move(failed_hosts_);
  return end;
}

net::Task<int> JobLaunch::run_all() {
  watch_signals();
  if (const int code = co_await prepare(); code != 0) co_return code;
  co_await start();
  while (!supervisor_.is_done()) {
    changed_.expires_at(std::chrono::steady_clock::time_point::max());
    co_await changed_.async_wait(net::use_tuple);
  }
  give_up_.cancel();
  cause_.cancel();
  timeout_.cancel();
  tell_the_end();
  co_await output_->drain();
  drop_links();
  co_return supervisor_.exit_code();
}

bool JobLaunch::reads_input(int rank) const {
  const Settings& settings = options_.settings;
  // A list of hosts may have come by it.
  if (settings.text("hostfile") == "-" || settings.text("stdin") == "none") return false;
  return rank == 0 || settings.text("stdin") == "all";
}

// Once all ranks run.
void JobLaunch::start_input() {
  std::vector<int> readers;
  for (const Slot& slot : plan_.slots) {
    if (reads_input(slot.rank)) readers.push_back(slot.rank);
  }
  if (readers.empty()) return;
  input_ = std::make_unique<StandardInput>(
      loop_.get_executor(), STDIN_FILENO, readers, [this](int rank, ByteView bytes) {
        if (as_text(bytes).ends_with('\n') && ::isatty(STDIN_FILENO) == 1)
          output_->line_was_typed();
        links_[static_cast<size_t>(plan_.slots[static_cast<size_t>(rank)].host)]->give_input(rank,
                                                                                             bytes);
      });
  input_->start();
}

// To whoever looks in from another terminal.
net::Task<void> JobLaunch::answer(std::string request, net::StreamSocket& caller) {
  constexpr std::string_view kRun = "exec ";
  if (request.starts_with(kRun)) {
    // A link's message, in hexadecimal digits.
    const auto bytes = from_hex(std::string_view(request).substr(kRun.size()));
    auto message = bytes.ok() ? decode(*bytes) : Result<Message>(bytes.status());
    Run* run = message.ok() ? std::get_if<Run>(&*message) : nullptr;
    if (run != nullptr) co_return co_await commands_.run(std::move(*run), caller);
    const Message refusal =
        Ran{.code = kExitBadInput,
            .why = "this is no order to run a command: is it of another release?\n"};
    co_await send_record(caller, refusal);
    co_return;
  }
  const bool with_stacks = request == "stack";
  std::string text = cat("horovodrun, pid ", ::getpid(), ", ", plan_.size(),
                         " ranks: ", printable(join(options_.command, " ")), "\n");
  const std::vector<std::string> hosts = co_await inspection_.run(with_stacks);
  for (size_t host = 0; host < hosts.size(); ++host) {
    const bool is_done = supervisor_.is_done(static_cast<int>(host));
    text += cat("host ", plan_.hosts[host].name,
                is_done               ? ": has ended\n"
                : hosts[host].empty() ? ": no rank runs\n"
                                      : "\n",
                hosts[host]);
  }
  co_await net::asio::async_write(caller, net::asio::buffer(text), net::use_tuple);
}

void prepare_process(const Options& options) {
  if (log::Level level; log::parse_level(options.settings.text("log_level"), level)) {
    log::set_level(level);
  }
  if (options.settings.flag("verbose")) log::set_level(log::Level::kInfo);
  // A local agent starts with this process's environment.
  const Environment all = environment();
  const Environment kept = host_environment(all, true);
  for (const auto& variable : all) {
    const bool is_kept = std::find(kept.begin(), kept.end(), variable) != kept.end();
    if (!is_kept) forget_environment_variable(variable.first);
  }
  std::signal(SIGPIPE, SIG_IGN);
}

JobEnd run_job(const Options& options, const SlotPlan& plan, uint32_t generation,
               JoinQueue* join_queue) {
  return JobLaunch(options, plan, generation, join_queue).run();
}

}  // namespace hvd::launcher
