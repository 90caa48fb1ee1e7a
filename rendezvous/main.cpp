// horovod-rendezvous: the rendezvous server alone. One thread; ends by SIGINT or SIGTERM.
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/standard_streams.h"
#include "base/text.h"
#include "horovod/version.h"
#include "rendezvous/monitor.h"
#include "rendezvous/server.h"
#include "rendezvous/token_file.h"

namespace hvd::rendezvous {
namespace {

constexpr int kBadInput = 2;

struct Options {
  int size = 0;
  std::vector<std::string> listen{":29400"};
  std::string token_file;
  bool open_monitor = false;
  bool show_monitor_token = false;
};

int fail(const std::string& message, int code) {
  std::fprintf(stderr, "horovod-rendezvous: %s\n", message.c_str());
  return code;
}

// Nothing when the program should go on.
std::optional<int> parse(int argc, char** argv, Options& options) {
  CLI::App app(
      "Lets the workers of a job meet: hands out ranks and keeps the job's store. Workers reach "
      "it with HOROVOD_STORE=tcp:HOST:PORT and HOROVOD_JOB_SECRET, the content of the token file.",
      "horovod-rendezvous");
  app.set_version_flag("-v,--version", HVD_VERSION);
  app.add_option("--num-proc", options.size,
                 "workers of the job, also written -np; without it no ranks are handed out")
      ->check(CLI::Range(1, 10'000'000));
  app.add_option("--listen", options.listen,
                 "[HOST]:PORT, [IPv6]:PORT, unix:/PATH or unix:@NAME; may be repeated; "
                 "port 0 takes a free one")
      ->capture_default_str();
  app.add_option("--token-file", options.token_file,
                 "file that holds the job's secret in hexadecimal digits, closed to others")
      ->required();
  app.add_flag("--open-monitor", options.open_monitor,
               "show /metrics and /status to everybody who can reach the port");
  app.add_flag("--show-monitor-token", options.show_monitor_token,
               "print the bearer token that opens /metrics and /status, and exit");
  // Multi-letter options with one dash are what users of launchers are used to.
  std::vector<std::string> arguments;
  for (int i = argc - 1; i > 0; --i) {
    const std::string_view argument = argv[i];
    arguments.emplace_back(argument == "-np" ? "--num-proc" : argument);
  }
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);
    return fail(cat(error.what(), "; see horovod-rendezvous --help"), kBadInput);
  }
  return {};
}

int serve(const Options& options) {
  auto secret = read_token_file(options.token_file);
  if (!secret.ok()) return fail(secret.status().message(), kBadInput);
  if (options.show_monitor_token) {
    std::printf("%s\n", Monitor::token(*secret).c_str());
    return 0;
  }
  net::asio::io_context loop(1);
  Server server(loop.get_executor(), {std::move(*secret), options.size, {}, options.open_monitor});
  // Before the line that tells others that this is a process to talk to.
  net::asio::signal_set signals(loop, SIGINT, SIGTERM);
  signals.async_wait([&](const net::error_code&, int) { server.close(); });
  for (const std::string& text : options.listen) {
    const bool is_full = text.starts_with("unix:") || text.starts_with("tcp:");
    const auto endpoint = net::parse_endpoint(is_full ? text : "tcp:" + text);
    if (!endpoint.ok()) return fail("--listen: " + endpoint.status().message(), kBadInput);
    const auto bound = server.listen(*endpoint);
    if (!bound.ok()) return fail(bound.status().message(), kBadInput);
    std::printf("horovod-rendezvous listens on %s\n", net::to_string(*bound).c_str());
  }
  std::fflush(stdout);
  loop.run();
  return 0;
}

}  // namespace
}  // namespace hvd::rendezvous

int main(int argc, char** argv) {
  hvd::open_standard_streams();
  hvd::rendezvous::Options options;
  if (const auto code = hvd::rendezvous::parse(argc, argv, options)) return *code;
  return hvd::rendezvous::serve(options);
}
