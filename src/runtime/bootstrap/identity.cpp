#include "runtime/bootstrap/identity.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/log/log.h"
#include "base/machine_identity.h"
#include "base/proc_file.h"
#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "horovod/version.h"
#include "plugin/catalogue.h"
#include "rendezvous/client/host_aggregation.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/client/unsigned_http_store.h"
#include "runtime/bootstrap/foreign_launcher.h"
#include "runtime/bootstrap/launcher_detection.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

// Reads one of the three pairs rank/size, local_rank/local_size, cross_rank/cross_size.
Status read_pair(const RankPair& pair, std::string_view rank_variable,
                 std::string_view size_variable, int32_t* rank, int32_t* size) {
  const bool has_rank = pair.rank.has_value();
  if (has_rank != pair.size.has_value()) {
    return invalid_argument(cat(has_rank ? rank_variable : size_variable, " is set but ",
                                has_rank ? size_variable : rank_variable,
                                " is not; set both or neither"));
  }
  if (!has_rank) return {};
  const int64_t of_rank = *pair.rank;
  const int64_t of_size = *pair.size;
  if (of_size < 1 || of_size > 1 << 24) {
    return invalid_argument(cat(size_variable, " is ", of_size, ", which is no number of ranks"));
  }
  if (of_rank < 0 || of_rank >= of_size) {
    return invalid_argument(cat(rank_variable, " is ", of_rank, ", but ", size_variable, " is ",
                                of_size, "; it must be from 0 to ", of_size - 1));
  }
  *rank = static_cast<int32_t>(of_rank);
  *size = static_cast<int32_t>(of_size);
  return {};
}

// Returns a name that is equal for all processes of one machine, and differs between machines.
std::string machine_name(const WorkerSettings& settings) {
  if (!settings.hostname.empty()) return settings.hostname;
  return cat(own_host_name(), "/", boot_id());
}

// Returns a unique name of this process, equal in all its calls of hvd_init.
std::string process_name(const WorkerSettings& settings) {
  const auto stat = ProcStat::read("/proc/self/");
  std::error_code error;
  const auto space = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  const std::string name = cat(machine_name(settings), "/", space.string(), "/", ::getpid(), "/",
                               stat ? cat((*stat)[StatField::kStart]) : std::string());
  return to_hex(sha256(as_bytes(name))).substr(0, 32);
}

// Refuses a launcher of another release, which may set other variables, or give them another meaning.
Status check_launcher_version(const WorkerSettings& settings, int32_t rank) {
  const std::string version = settings.launcher_version;
  if (version.empty() || is_same_release(version, HVD_VERSION)) return {};
  const std::string host = printable(settings.hostname);
  return failed_precondition(
      cat("rank ", rank, " on host ", host, " has libhorovod ", HVD_VERSION, " (",
          printable(plugin::own_path()), "), and its launcher is horovodrun ", printable(version),
          "; install version ", printable(release_of(version)), " of the package on host ", host,
          ", or start the job by horovodrun ", release_of(HVD_VERSION)));
}

Status check_start(const WorkerSettings& settings, const Identity& identity) {
  HVD_RETURN_IF_ERROR(check_launcher_version(settings, identity.rank));
  return check_launchers(settings, identity);
}

// Checks that the server replies, before this rank waits there for other ranks, which may take long.
Status reach(rendezvous::Store& store, const WorkerSettings& settings) {
  const auto found = store.get("reached", Deadline::after_seconds(settings.start_seconds));
  if (found.ok() || found.error().code() == Code::kNotFound) return {};
  return found.error();
}

Result<Identity> ask_for_place(rendezvous::HttpStore& store, const WorkerSettings& settings,
                               Deadline deadline) {
  auto place = store.join(machine_name(settings), deadline);
  if (!place.ok()) return place.error().with_context("asking the rendezvous for a rank");
  Identity identity;
  identity.rank = place->rank;
  identity.size = place->size;
  identity.local_rank = place->local_rank;
  identity.local_size = place->local_size;
  identity.cross_rank = place->cross_rank;
  identity.cross_size = place->cross_size;
  identity.generation = place->generation;
  return identity;
}

// Bootstraps under Horovod's own launcher, whose store has no signatures and assigns no ranks. The first rank
// makes the secret with which the ranks authenticate their links. The store sends this secret unencrypted.
Result<Bootstrap> bootstrap_plainly(Bootstrap result, std::string_view address,
                                    const BootstrapStart& start, const WorkerSettings& settings,
                                    Deadline deadline) {
  if (result.identity.rank < 0) {
    return invalid_argument(
        "HOROVOD_GLOO_RENDEZVOUS_ADDR is set but neither HOROVOD_RANK and HOROVOD_SIZE nor "
        "HOROVOD_JOB_SECRET; a server that hands out ranks wants the secret");
  }
  if (settings.encrypts && !result.identity.has_one_host()) {
    return failed_precondition(
        cat("HOROVOD_ENCRYPT is set, but the rendezvous server at ", address,
            " is unsigned, so that the secret of the keys would cross the network in clear; start "
            "the job by horovodrun, or unset HOROVOD_ENCRYPT"));
  }
  Identity place = result.identity;
  HVD_RETURN_IF_ERROR(restrict_to(start.ranks, &place));
  HVD_ASSIGN_OR_RETURN(net::Endpoint endpoint, net::parse_endpoint(address));
  auto store = std::make_shared<rendezvous::UnsignedHttpStore>(std::move(endpoint));
  HVD_RETURN_IF_ERROR(reach(*store, settings));
  std::string key = cat("secret/", start.epoch);
  for (const int32_t rank : start.ranks) key += cat(".", rank);
  if (place.rank == 0) {
    result.secret = Secret::random().hex();
    HVD_RETURN_IF_ERROR(store->set(key, as_bytes(result.secret), deadline));
    log::info("the ranks meet at an unsigned rendezvous server: who reaches it can join the job");
  } else {
    HVD_ASSIGN_OR_RETURN(const Bytes secret, store->wait(key, deadline));
    result.secret = as_text(secret);
  }
  result.store = std::move(store);
  return result;
}

}  // namespace

Result<Identity> identity_of(const WorkerSettings& settings) {
  Identity identity;
  identity.rank = -1;
  HVD_RETURN_IF_ERROR(
      read_pair(settings.of_job, "HOROVOD_RANK", "HOROVOD_SIZE", &identity.rank, &identity.size));
  HVD_RETURN_IF_ERROR(read_pair(settings.of_host, "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE",
                                &identity.local_rank, &identity.local_size));
  HVD_RETURN_IF_ERROR(read_pair(settings.across_hosts, "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
                                &identity.cross_rank, &identity.cross_size));
  identity.generation = settings.generation;
  if (identity.rank < 0) {
    if (identity.local_rank >= 0 || identity.cross_rank >= 0) {
      return invalid_argument(
          "HOROVOD_LOCAL_RANK or HOROVOD_CROSS_RANK is set but HOROVOD_RANK "
          "is not; set HOROVOD_RANK and HOROVOD_SIZE too");
    }
    return identity;
  }
  if (identity.local_size > identity.size || identity.cross_size > identity.size) {
    return invalid_argument(
        cat(identity.local_size > identity.size ? "HOROVOD_LOCAL_SIZE" : "HOROVOD_CROSS_SIZE",
            " is ", std::max(identity.local_size, identity.cross_size), ", but HOROVOD_SIZE is ",
            identity.size));
  }
  return identity;
}

Result<std::string> store_address(const WorkerSettings& settings) {
  if (!settings.store.empty()) return settings.store;
  const bool has_address = !settings.rendezvous_address.empty();
  if (has_address != settings.rendezvous_port.has_value()) {
    return invalid_argument(
        "HOROVOD_GLOO_RENDEZVOUS_ADDR and HOROVOD_GLOO_RENDEZVOUS_PORT need each other, but one "
        "of them is not set");
  }
  if (!has_address) return std::string();
  const std::string& address = settings.rendezvous_address;
  const bool is_ipv6 = address.find(':') != std::string::npos && address.front() != '[';
  return cat("tcp:", is_ipv6 ? "[" : "", address, is_ipv6 ? "]" : "", ":",
             *settings.rendezvous_port);
}

bool is_in_foreign_elastic_job(const WorkerSettings& settings) {
  return settings.is_elastic_by_original && !settings.rendezvous_address.empty() &&
         settings.of_job.rank.has_value() && settings.store.empty() && settings.job_secret.empty();
}

Status take_next_place(WorkerSettings* settings) {
  HVD_ASSIGN_OR_RETURN(const std::string address, store_address(*settings));
  HVD_ASSIGN_OR_RETURN(net::Endpoint endpoint, net::parse_endpoint(address));
  const rendezvous::UnsignedHttpStore store(std::move(endpoint));
  // The launcher identifies a process by its first slot, which the environment has.
  const std::string worker =
      cat(settings->hostname, ":", settings->of_host.rank ? cat(*settings->of_host.rank) : "");
  HVD_ASSIGN_OR_RETURN(const Bytes answer, store.next_place(worker, Deadline::never()));
  // Pairs of rank and size: in the job, on the host and across hosts.
  std::array<int64_t, 6> numbers{};
  const std::vector<std::string> words = split(as_text(answer), ',');
  size_t read = 0;
  for (; read < std::min(words.size(), numbers.size()); ++read) {
    const auto number = parse_int(words[read]);
    if (!number) break;
    numbers[read] = *number;
  }
  if (read != numbers.size() || words.size() != read) {
    return failed_precondition(cat("Horovod's launcher answers '", printable(as_text(answer)),
                                   "' to the question for the next rank"));
  }
  if (numbers.front() == -1) {
    return aborted(cat("Horovod's launcher has taken process ", printable(worker),
                       " out of the elastic job, which goes on without it"));
  }
  settings->set_ranks(numbers);
  return {};
}

Result<Bootstrap> bootstrap(const WorkerSettings& settings, Deadline deadline,
                            const BootstrapStart& start, SavedBootstrap* saved) {
  Bootstrap result;
  HVD_ASSIGN_OR_RETURN(result.identity, identity_of(settings));
  HVD_ASSIGN_OR_RETURN(const std::string address, store_address(settings));
  Identity& identity = result.identity;
  if (identity.rank >= 0) result.trouble = check_start(settings, identity);
  if (address.empty()) {
    HVD_RETURN_IF_ERROR(result.trouble);
    if (identity.size > 1) {
      return invalid_argument(cat("HOROVOD_SIZE is ", identity.size,
                                  ", but HOROVOD_STORE does not say where the ranks meet; ",
                                  foreign_place() ? "unset HOROVOD_RANK and HOROVOD_SIZE, since "
                                                    "another launcher has started this rank"
                                                  : "start the program by horovodrun, or set it"));
    }
    if (identity.rank < 0) {
      HVD_ASSIGN_OR_RETURN(auto foreign,
                           bootstrap_by_foreign_launcher(settings, deadline, start, saved));
      if (foreign) return *std::move(foreign);
    }
    identity.rank = 0;
    return result;
  }
  // A single-process job needs no store.
  if (identity.rank >= 0 && identity.size == 1) {
    HVD_RETURN_IF_ERROR(result.trouble);
    return result;
  }
  if (settings.job_secret.empty() && settings.store.empty()) {
    return bootstrap_plainly(std::move(result), address, start, settings, deadline);
  }
  if (settings.job_secret.empty()) {
    return invalid_argument(cat("the store is at ", address,
                                ", but HOROVOD_JOB_SECRET is not set; it is the secret that the "
                                "launcher gave to its ranks"));
  }
  auto secret = Secret::from_hex(settings.job_secret);
  if (!secret.ok()) return secret.error().with_context("HOROVOD_JOB_SECRET");
  rendezvous::HttpStoreOptions options;
  options.worker = process_name(settings);
  options.ranks = identity.size;
  options.reconnect_seconds = std::min(options.reconnect_seconds, settings.start_seconds);
  if (!settings.store_ca.empty()) options.tls = net::TlsOptions{.ca_file = settings.store_ca};
  HVD_ASSIGN_OR_RETURN(std::shared_ptr<rendezvous::HttpStore> store,
                       rendezvous::HttpStore::open(address, *std::move(secret), options));
  if (!address.starts_with(rendezvous::kAgentScheme)) {
    HVD_RETURN_IF_ERROR(reach(*store, settings));
  }
  if (identity.rank < 0) {
    HVD_ASSIGN_OR_RETURN(identity, ask_for_place(*store, settings, deadline));
    result.trouble = check_start(settings, identity);
  }
  result.store = std::move(store);
  return result;
}

Status restrict_to(std::span<const int32_t> ranks, Identity* identity) {
  if (ranks.empty()) return {};
  const std::string call = cat("hvd.init(comm=", list_text(ranks), ")");
  std::set<int32_t> seen;
  for (const int32_t rank : ranks) {
    if (rank < 0 || rank >= identity->size) {
      return invalid_argument(cat("rank ", rank, " is in ", call,
                                  ", but the job has the ranks 0 to ", identity->size - 1));
    }
    if (!seen.insert(rank).second) {
      return invalid_argument(cat("rank ", rank, " is twice in ", call));
    }
  }
  const auto found = std::find(ranks.begin(), ranks.end(), identity->rank);
  if (found == ranks.end()) {
    return invalid_argument(cat("rank ", identity->rank, " is not in ", call,
                                ", which only the ranks of the list may call"));
  }
  identity->job_rank = identity->rank;
  identity->rank = static_cast<int32_t>(found - ranks.begin());
  identity->size = static_cast<int32_t>(ranks.size());
  identity->local_rank = identity->local_size = identity->cross_rank = identity->cross_size = -1;
  return {};
}

void complete_identity(std::span<const int32_t> machines, Identity* identity) {
  const size_t count =
      machines.empty()
          ? 0
          : static_cast<size_t>(*std::max_element(machines.begin(), machines.end())) + 1;
  std::vector<int32_t> ranks_on(count, 0);  // number of ranks counted on each machine
  int32_t local_rank = 0;
  for (size_t rank = 0; rank < machines.size(); ++rank) {
    if (static_cast<int32_t>(rank) == identity->rank) local_rank = ranks_on[machines[rank]];
    ++ranks_on[machines[rank]];
  }
  identity->is_homogeneous =
      std::all_of(ranks_on.begin(), ranks_on.end(), [&](int32_t n) { return n == ranks_on[0]; });
  const int32_t machine = machines[identity->rank];
  if (identity->local_rank < 0) {
    identity->local_rank = local_rank;
    identity->local_size = ranks_on[machine];
  }
  if (identity->cross_rank < 0) {
    // Counts only machines that have a rank with this local rank.
    identity->cross_rank = identity->cross_size = 0;
    for (size_t other = 0; other < count; ++other) {
      if (ranks_on[other] <= identity->local_rank) continue;
      if (static_cast<int32_t>(other) < machine) ++identity->cross_rank;
      ++identity->cross_size;
    }
  }
}

}  // namespace hvd::runtime
