// horovod-agent: the launcher starts it on each host of a job, or a user starts it with --join.
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/limits/last_resort.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "horovod/version.h"
#include "launcher/agent/agent.h"
#include "launcher/agent/doctor/examination.h"
#include "launcher/agent/guardian.h"
#include "launcher/agent/host/leftovers.h"
#include "launcher/agent/link/join.h"
#include "launcher/agent/link/link.h"
#include "launcher/agent/link/reattachment.h"
#include "launcher/agent/ranks/staging.h"
#include "launcher/protocol/other_launchers.h"
#include "net/event_loop.h"

namespace {

using namespace hvd;
using namespace hvd::launcher;

constexpr int kFailed = 2;

int fail(std::string_view sentence) {
  std::fprintf(stderr, "horovod-agent: %.*s\n", static_cast<int>(sentence.size()), sentence.data());
  return kFailed;
}

// Closes inherited descriptors, for example of a login shell, which the ranks must not inherit.
void close_inherited() {
  if (::syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0) == 0) return;
  const long limit = ::sysconf(_SC_OPEN_MAX);
  for (int fd = STDERR_FILENO + 1; fd < (limit > 0 && limit < 65536 ? limit : 65536); ++fd) {
    ::close(fd);
  }
}

std::string file_name(std::string_view path) {
  return std::string(path.substr(path.rfind('/') + 1));
}

struct Options {
  // The address of a launcher's rendezvous server; empty: the link uses standard input and output.
  std::string join;
  std::string name;
  int slots = 0;
  std::string ca_file;
  bool insecure_plaintext = false;
  std::optional<Secret> token;
};

constexpr std::string_view kPlaintext = "--insecure-plaintext";

constexpr char kHelp[] =
    "Usage: horovod-agent --join HOST:PORT --token-file FILE [flags]\n"
    "\n"
    "Start and watch the ranks of a job on this host. horovodrun starts this program\n"
    "on the hosts that it reaches. On a host without sshd, start it by hand: it joins\n"
    "the job of a `horovodrun --listen`.\n"
    "\n"
    "  --join HOST:PORT     Join the job of a horovodrun --listen, by TLS with the\n"
    "                       token; https://HOST:PORT: with its certificate.\n"
    "  --token-file FILE    File with the job's secret, readable only by you.\n"
    "  --token-fd FD        Inherited descriptor to read the secret from instead.\n"
    "  --name NAME          Name of this host in the job; default its host name.\n"
    "  --slots N            Number of ranks for this host; default its cores.\n"
    "  --ca FILE            PEM file of the authorities that sign the certificate.\n"
    "  --insecure-plaintext Join without TLS a horovodrun with the same flag.\n"
    "  --version            Print the version and exit.\n"
    "  --help               Print this and exit.\n";

// The flags with a value.
constexpr std::array<std::string_view, 6> kFlags = {"--join",  "--name",       "--ca",
                                                    "--slots", "--token-file", "--token-fd"};

// The token is never an argument, because every user of the host can read a process's arguments.
struct TokenPlace {
  std::string file;
  std::optional<int> fd;
  bool is_given() const { return !file.empty() || fd; }
};

// `option`: one of kFlags.
Status take_value(std::string_view option, const std::string& value, Options& options,
                  TokenPlace& token) {
  if (option == "--join") options.join = value;
  if (option == "--name") options.name = value;
  if (option == "--ca") options.ca_file = value;
  if (option == "--token-file") token.file = value;
  if (option == "--slots") {
    const auto slots = parse_int(value);
    if (!slots || *slots < 1 || *slots > 65536) {
      return invalid_argument("--slots takes a number from 1 to 65536");
    }
    options.slots = static_cast<int>(*slots);
  }
  if (option == "--token-fd") {
    const auto fd = parse_int(value);
    if (!fd) return invalid_argument("--token-fd takes the number of a descriptor");
    token.fd = static_cast<int>(*fd);
  }
  return {};
}

Status check_flags(const Options& options, const TokenPlace& token) {
  const bool is_https = std::string_view(options.join).starts_with(kHttps);
  if (!options.ca_file.empty() && !is_https) {
    return invalid_argument("--ca is for --join https://HOST:PORT");
  }
  if (options.insecure_plaintext && (options.join.empty() || is_https)) {
    return invalid_argument("--insecure-plaintext is for --join HOST:PORT");
  }
  if (options.join.empty() == token.is_given()) {
    return invalid_argument("--join needs --token-file or --token-fd, and both need --join");
  }
  return {};
}

Result<Options> parse(int argc, char** argv) {
  Options options;
  TokenPlace token;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == kPlaintext) {
      options.insecure_plaintext = true;
      continue;
    }
    if (std::find(kFlags.begin(), kFlags.end(), option) == kFlags.end()) {
      return invalid_argument(
          cat("unknown flag '", printable(option), "'; see horovod-agent --help"));
    }
    if (i + 1 == argc) return invalid_argument(cat("'", option, "' needs a value"));
    HVD_RETURN_IF_ERROR(take_value(option, argv[++i], options, token));
  }
  HVD_RETURN_IF_ERROR(check_flags(options, token));
  if (!token.is_given()) return options;
  HVD_ASSIGN_OR_RETURN(options.token, read_token(token.file, token.fd));
  return options;
}

// Returns whether the options need TLS. Call before parse(): it reads the token, which the program with TLS must read,
// and a token can be read only once.
bool joins_by_tls(int argc, char** argv) {
  const auto has = [&](std::string_view flag) {
    return std::find(argv, argv + argc, flag) != argv + argc;
  };
  return has("--join") && !has(kPlaintext);
}

// `session`: the session that the launcher began on standard input; null if the agent joins.
Result<OpenedLink> make_link(const Options& options, const OpenSession* session) {
  if (session != nullptr) {
    HVD_ASSIGN_OR_RETURN(Link connection, stream_link());
    return OpenedLink{std::move(connection), *session};
  }
  auto link = join({options.join, options.name, options.slots, *options.token, options.ca_file,
                    options.insecure_plaintext});
  // A resource manager may write to the standard input of every host, which ranks must not read.
  const UniqueFd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (link.ok() && null) ::dup2(null.get(), STDIN_FILENO);
  return link;
}

// Returns an unused path, in memory if possible. The name is short enough for names of sockets in
// this folder.
std::string job_folder() {
  const char* const where = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  return cat(where, "/", kJobFolder, random_number() % 1'000'000'000'000);
}

int run_agent(const Options& options, const OpenSession* session, std::string build,
              std::string folder, const std::string& staging, Watchdog& watchdog) {
  auto link = make_link(options, session);
  if (!link.ok()) return fail(link.error().message());
  auto loop = net::EventLoop::open();
  if (!loop.ok()) return fail(loop.error().message());
  Environment own = environment();
  std::erase_if(own, [](const auto& variable) { return is_of_other_launcher(variable.first); });
  return Agent(std::move(*loop), std::move(*link), std::move(build), std::move(own),
               std::move(folder), staging, watchdog)
      .run();
}

// Runs what this program does besides being an agent. Returns the exit code; nullopt for an agent.
std::optional<int> run_other(int argc, char** argv) {
  const std::string_view first = argc > 1 ? argv[1] : "";
  if (argc == 2 && first == "--version") {
    std::printf("horovod-agent %s\n", HVD_VERSION);
    return 0;
  }
  if (argc == 2 && (first == "--help" || first == "-h")) {
    std::fputs(kHelp, stdout);
    return 0;
  }
  if (argc > 3 && first == "--doctor") {
    return examine_host(argv[2], argv[3], {argv + 4, argv + argc});
  }
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  end_by_sentence("horovod-agent", kFailed);
  if (const auto code = run_other(argc, argv)) return *code;
  if (joins_by_tls(argc, argv)) {
    const Status status = speak_tls(argv);
    if (!status.ok()) return fail(status.message());
  }
  const auto options = parse(argc, argv);
  if (!options.ok()) return fail(options.error().message());
  if (options->join.empty() && ::isatty(STDIN_FILENO)) {
    return fail(
        "this program starts and watches the ranks of a job on one host for horovodrun, "
        "which starts it by itself");
  }
  close_inherited();
  Opening opening;
  if (options->join.empty()) {
    auto received = receive_opening(STDIN_FILENO, nullptr);
    if (!received.ok()) return fail(received.status().message());
    opening = *received;
    if (const auto* order = std::get_if<Reattach>(&opening)) return hand_over(*order);
  }
  const OpenSession* const session =
      options->join.empty() ? std::get_if<OpenSession>(&opening) : nullptr;
  remove_unused_agents(argv[0]);
  const std::string folder = job_folder();
  const std::string staging = staging_directory();
  return run_guarded(argv,
                     [&](Watchdog& watchdog) {
                       return run_agent(*options, session, file_name(argv[0]), folder, staging,
                                        watchdog);
                     },
                     {folder, staging});
}
