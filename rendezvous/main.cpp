// horovod-rendezvous: the rendezvous server alone. One thread; ends by SIGINT or SIGTERM.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/secrets/token_file.h"
#include "base/standard_streams.h"
#include "base/text.h"
#include "horovod/version.h"
#include "rendezvous/etcd/etcd_store.h"
#include "rendezvous/server/listening.h"
#include "rendezvous/server/monitor.h"
#include "rendezvous/server/server.h"

namespace hvd::rendezvous {
namespace {

constexpr int kBadInput = 2;
constexpr int kLost = 1;

struct Options {
  int size = 0;
  std::vector<std::string> listen{":29400"};
  std::string port_range;
  std::string token_file;
  std::optional<int> token_fd;
  std::string backend = "memory";
  int keep = static_cast<int>(etcd::kUsualLifetime.count());
  bool open_monitor = false;
  bool show_monitor_token = false;
  bool insecure_compat = false;
  std::string tls_certificate;
  std::string tls_key;
  etcd::AccessFiles etcd_files;
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
  app.add_option("--port-range", options.port_range,
                 "FIRST-LAST: listen at the first of these ports that is free, not at that of "
                 "--listen");
  app.add_option("--token-file", options.token_file,
                 "file with the job's token in hexadecimal digits: yours and closed to others, or "
                 "root's and open to a group");
  app.add_option("--token-fd", options.token_fd,
                 "inherited descriptor to read the token from, such as a pipe's, in place of "
                 "--token-file")
      ->check(CLI::Range(0, 1 << 20));
  app.add_option(
         "--backend", options.backend,
         "where the job is kept: memory, or etcd://HOST:2379[,HOST:2379...][/PREFIX], by TLS "
         "etcds://, so that it outlives this server: another one with the same token goes "
         "on. SIGINT ends the job and removes it there, SIGTERM ends the server alone")
      ->capture_default_str();
  app.add_option("--etcd-user-file", options.etcd_files.user,
                 "file with USER:PASSWORD of etcd, closed to others");
  app.add_option("--etcd-ca", options.etcd_files.ca,
                 "PEM file of the authorities that may vouch for etcds://, not the system's");
  CLI::Option* etcd_certificate = app.add_option("--etcd-cert", options.etcd_files.certificate,
                                                 "PEM file with a certificate for etcd");
  CLI::Option* etcd_key =
      app.add_option("--etcd-key", options.etcd_files.key, "PEM file with its key");
  etcd_certificate->needs(etcd_key);
  etcd_key->needs(etcd_certificate);
  app.add_option("--keep", options.keep,
                 "seconds for which etcd keeps the job when no server is there")
      ->check(CLI::Range(1, 1'000'000))
      ->capture_default_str();
  app.add_flag("--open-monitor", options.open_monitor,
               "show /metrics and /status to everybody who can reach the port");
  CLI::Option* certificate =
      app.add_option("--tls-cert", options.tls_certificate,
                     "speak TLS, with the certificates of this PEM file; workers then take "
                     "HOROVOD_STORE=https://HOST:PORT");
  CLI::Option* key = app.add_option("--tls-key", options.tls_key, "PEM file with its key");
  certificate->needs(key);
  key->needs(certificate);
  app.add_flag("--insecure-compat", options.insecure_compat,
               "also serve the unsigned requests by which Horovod's own workers meet, to everybody "
               "who can reach the port");
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

// Each connection costs a descriptor, and the usual soft limit is 1,024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

// What the server before has stored, where there is durable storage.
Result<OpenedStore> open_backend(const Options& options, const Secret& secret,
                                 net::asio::io_context& loop) {
  constexpr double kTimeToOpen = 15;
  const auto& files = options.etcd_files;
  if (options.backend == "memory") {
    if (files.user.empty() && files.ca.empty() && files.certificate.empty()) return OpenedStore{};
    return invalid_argument(
        "--etcd-user-file, --etcd-ca and --etcd-cert are for --backend etcd://…");
  }
  auto url = etcd::parse_url(options.backend);
  if (!url.ok()) return url.status().with_context("--backend");
  if (const Status status = etcd::read_files(files, url->access); !status.ok()) {
    return invalid_argument(status.message());
  }
  Result<OpenedStore> opened = internal_error("etcd was not asked");
  net::asio::co_spawn(
      loop,
      [&]() -> net::Task<void> {
        opened = co_await etcd::open_store(loop.get_executor(), *url, secret,
                                           std::chrono::seconds(options.keep),
                                           Deadline::after_seconds(kTimeToOpen));
        loop.stop();
      },
      net::asio::detached);
  loop.run();
  loop.restart();
  return opened;
}

int serve(const Options& options) {
  raise_descriptor_limit();
  auto secret = read_token(options.token_file, options.token_fd);
  if (!secret.ok()) return fail(secret.status().message(), kBadInput);
  if (options.show_monitor_token) {
    std::printf("%s\n", Monitor::token(*secret).c_str());
    return 0;
  }
  net::asio::io_context loop(1);
  auto opened = open_backend(options, *secret, loop);
  if (!opened.ok()) {
    return fail(opened.status().message(),
                opened.status().code() == Code::kInvalidArgument ? kBadInput : kLost);
  }
  ServerOptions server_options{std::move(*secret), options.size, {}, options.open_monitor, {}};
  if (options.insecure_compat) {
    server_options.insecure_compat.emplace();
    if (options.size > 0) server_options.insecure_compat->emplace("global", options.size);
  }
  if (!options.tls_certificate.empty()) {
    auto tls = net::TlsFront::make(options.tls_certificate, options.tls_key);
    if (!tls.ok()) return fail(tls.status().message(), kBadInput);
    server_options.tls = std::move(*tls);
  }
  Server server(loop.get_executor(), std::move(server_options));
  // Before the line that tells others that this is a process to talk to.
  net::asio::signal_set signals(loop, SIGINT, SIGTERM);
  int code = 0;
  const bool outlived = opened->store != nullptr;
  signals.async_wait([&](const net::error_code& error, int number) {
    if (error) return;
    if (outlived && number == SIGTERM)
      server.hand_over();
    else
      server.close();
  });
  if (outlived) {
    const Status status = server.resume(std::move(*opened), [&](const Status& why) {
      code = fail(why.message(), kLost);
      signals.cancel();
    });
    if (!status.ok()) {
      server.hand_over();
      return fail(status.message(), kBadInput);
    }
  }
  for (const std::string& text : options.listen) {
    const auto bound = listen_at(server, text, options.port_range);
    if (!bound.ok()) return fail(bound.status().message(), kBadInput);
    std::printf("horovod-rendezvous listens on %s\n", net::to_string(*bound).c_str());
  }
  std::fflush(stdout);
  loop.run();
  return code;
}

}  // namespace
}  // namespace hvd::rendezvous

int main(int argc, char** argv) {
  hvd::open_standard_streams();
  hvd::rendezvous::Options options;
  if (const auto code = hvd::rendezvous::parse(argc, argv, options)) return *code;
  return hvd::rendezvous::serve(options);
}
