// The program horovod-rendezvous: a rendezvous server without a launcher. One thread; it ends on SIGINT, on SIGTERM, or
// when the other end of --lifetime-fd closes.
#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "base/limits/descriptor_limit.h"
#include "base/limits/last_resort.h"
#include "base/log/log.h"
#include "base/process/signals.h"
#include "base/process/spawn.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "horovod/version.h"
#include "net/asio.h"
#include "rendezvous/etcd/etcd_store.h"
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
  std::optional<int> lifetime_fd;
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

// Parses the command line. Returns the exit code if the program ends here, for example after --help.
std::optional<int> parse(int argc, char** argv, Options& options) {
  constexpr size_t kHelpColumn = 34;
  CLI::App app(
      "Run a rendezvous server: it gives ranks to the workers of a job and keeps the job's store.\n"
      "Workers reach it with HOROVOD_STORE=tcp:HOST:PORT and HOROVOD_JOB_SECRET, the content of\n"
      "the token file.",
      "horovod-rendezvous");
  app.get_formatter()->column_width(kHelpColumn);
  app.get_formatter()->label("REQUIRED", "");
  app.set_help_flag("-h,--help", "Print this and exit.");
  app.set_version_flag("-v,--version", HVD_VERSION, "Print the version and exit.");
  const auto range = [](int low, int high) { return CLI::Range(low, high).description(""); };
  app.add_option("--num-proc", options.size,
                 "Number of workers, also written -np.\nWithout it the server gives no ranks.")
      ->check(range(1, 10'000'000))
      ->type_name("N");
  app.add_option("--listen", options.listen,
                 "Address to listen on; also [IPv6]:PORT, unix:/PATH,\n"
                 "unix:@NAME. Port 0 is any free one. May be repeated.")
      ->type_name("[HOST]:PORT")
      ->capture_default_str();
  app.add_option("--port-range", options.port_range,
                 "Listen on the first free port of this range,\ninstead of the port of --listen.")
      ->type_name("FIRST-LAST");
  app.add_option("--token-file", options.token_file,
                 "File with the job's hexadecimal token, readable\n"
                 "only by you, or by a group if root owns it.")
      ->type_name("FILE");
  app.add_option("--token-fd", options.token_fd,
                 "Inherited descriptor to read the token from, such\n"
                 "as a pipe, instead of --token-file.")
      ->check(range(0, 1 << 20))
      ->type_name("FD");
  app.add_option("--lifetime-fd", options.lifetime_fd,
                 "Inherited pipe or socket: end when its other end\n"
                 "closes, so that no server outlives its parent.")
      ->check(range(0, 1 << 20))
      ->type_name("FD");
  app.add_option("--backend", options.backend,
                 "Storage of the job: memory, or\n"
                 "etcd://HOST:2379[,HOST:2379...][/PREFIX], by TLS\n"
                 "etcds://. In etcd the job outlives this server:\n"
                 "another one with the same token continues it.\n"
                 "SIGINT ends the job and removes its records;\n"
                 "SIGTERM ends only the server.")
      ->type_name("URL")
      ->capture_default_str();
  app.add_option("--etcd-user-file", options.etcd_files.user,
                 "File with USER:PASSWORD for etcd, readable only by you.")
      ->type_name("FILE");
  app.add_option("--etcd-ca", options.etcd_files.ca,
                 "PEM file of the authorities that sign etcd's\n"
                 "certificate, instead of those of the system.")
      ->type_name("FILE");
  CLI::Option* etcd_certificate = app.add_option("--etcd-cert", options.etcd_files.certificate,
                                                 "PEM file with a client certificate for etcd.")
                                      ->type_name("FILE");
  CLI::Option* etcd_key =
      app.add_option("--etcd-key", options.etcd_files.key, "PEM file with the key of --etcd-cert.")
          ->type_name("FILE");
  etcd_certificate->needs(etcd_key);
  etcd_key->needs(etcd_certificate);
  app.add_option("--keep", options.keep, "Time that etcd keeps the job without a server.")
      ->check(range(1, 1'000'000))
      ->type_name("SECONDS")
      ->capture_default_str();
  app.add_flag("--open-monitor", options.open_monitor,
               "Show /metrics and /status to everybody who can\nreach the port.");
  CLI::Option* certificate = app.add_option("--tls-cert", options.tls_certificate,
                                            "Use TLS with the certificates of this PEM file;\n"
                                            "workers set HOROVOD_STORE=https://HOST:PORT.")
                                 ->type_name("FILE");
  CLI::Option* key =
      app.add_option("--tls-key", options.tls_key, "PEM file with the key of --tls-cert.")
          ->type_name("FILE");
  certificate->needs(key);
  key->needs(certificate);
  app.add_flag("--insecure-compat", options.insecure_compat,
               "Serve also the unsigned requests of Horovod's own\n"
               "workers: on this host only those of your user and\n"
               "root, on other hosts all that reach the port.");
  app.add_flag("--show-monitor-token", options.show_monitor_token,
               "Print the bearer token for /metrics and /status,\nand exit.");
  // Users of launchers write -np, which CLI11 would parse as -n -p.
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

// Warns if the login would send the password to etcd over a network without encryption.
void warn_of_clear_password(const etcd::AccessFiles& files, const etcd::Url& url) {
  if (files.user.empty() || url.access.tls) return;
  for (const net::Endpoint& endpoint : url.endpoints) {
    const std::string& host = endpoint.host;
    if (host == "localhost" || host == "::1" || host.starts_with("127.")) continue;
    const std::string where = net::to_string(endpoint).substr(4);  // without "tcp:"
    return log::warning(cat("the password in ", printable(files.user),
                            " goes unencrypted to etcd at ", where,
                            "; set up TLS in etcd, and write --backend etcds://", where));
  }
}

// Opens the durable store of --backend and reads the records of the earlier server; empty for memory.
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
  warn_of_clear_password(files, *url);
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
    server_options.insecure_compat_at_ports = true;
    if (options.size > 0) server_options.insecure_compat->emplace("global", options.size);
  }
  if (!options.tls_certificate.empty()) {
    auto tls =
        net::TlsFront::make({.certificate = options.tls_certificate, .key = options.tls_key});
    if (!tls.ok()) return fail(tls.status().message(), kBadInput);
    server_options.tls = std::move(*tls);
  }
  Server server(loop.get_executor(), std::move(server_options));
  // Set the signals before the line "listens on": a script may send a signal as soon as it reads that line.
  net::asio::signal_set signals(loop, SIGINT, SIGTERM);
  int code = 0;
  const bool outlived = opened->store != nullptr;
  net::asio::posix::stream_descriptor lifetime(loop);
  const auto stop_waiting = [&] {
    net::error_code ignored;
    signals.cancel(ignored);
    if (lifetime.is_open()) lifetime.cancel(ignored);
  };
  const auto end = [&](int number) {
    stop_waiting();
    if (outlived && number == SIGTERM)
      server.hand_over();
    else
      server.close();
  };
  signals.async_wait([&](const net::error_code& error, int number) {
    if (!error) end(number);
  });
  if (options.lifetime_fd) {
    net::error_code error;
    lifetime.assign(*options.lifetime_fd, error);
    if (error) {
      return fail(cat("--lifetime-fd ", *options.lifetime_fd, ": ", error.message(),
                      "; give an inherited pipe or socket"),
                  kBadInput);
    }
    lifetime.async_wait(lifetime.wait_read, [&](const net::error_code& aborted) {
      if (!aborted) end(SIGTERM);
    });
  }
  if (outlived) {
    const Status status = server.resume(std::move(*opened), [&](const Status& why) {
      code = fail(why.message(), kLost);
      stop_waiting();
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
  hvd::set_up_signals();
  hvd::end_by_sentence("horovod-rendezvous", hvd::rendezvous::kLost, hvd::net::error_number_of);
  hvd::rendezvous::Options options;
  if (const auto code = hvd::rendezvous::parse(argc, argv, options)) return *code;
  return hvd::rendezvous::serve(options);
}
