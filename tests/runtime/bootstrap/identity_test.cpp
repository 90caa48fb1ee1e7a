#include "runtime/bootstrap/identity.h"

#include <doctest/doctest.h>

#include "base/text.h"
#include "horovod/version.h"
#include "runtime/bootstrap/backend_agreement.h"
#include "runtime/bootstrap/foreign_launcher.h"
#include "runtime/progress/progress.h"

using namespace hvd::runtime;
using hvd::Deadline;

namespace {

using Values = std::vector<std::pair<const char*, const char*>>;

WorkerSettings with(const Values& values) {
  hvd::Settings table;
  for (const auto& [key, value] : values) REQUIRE(table.set(key, value).ok());
  return WorkerSettings(table);
}

std::string refusal(std::initializer_list<std::pair<const char*, const char*>> values) {
  const auto made = bootstrap(with(values), Deadline::after_seconds(1), {}, nullptr);
  return made.ok() ? std::string() : made.error().message();
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("nothing set is a world of one without a store") {
  hvd::runtime::SavedBootstrap saved;
  const auto made = bootstrap({}, Deadline::after_seconds(1), {}, &saved);
  REQUIRE(made.ok());
  CHECK(made->identity.rank == 0);
  CHECK(made->identity.size == 1);
  CHECK(made->store == nullptr);
}

TEST_CASE("a rank's variables are its identity") {
  const auto identity = identity_of(with({{"rank", "5"},
                                          {"size", "8"},
                                          {"local_rank", "1"},
                                          {"local_size", "4"},
                                          {"cross_rank", "1"},
                                          {"cross_size", "2"},
                                          {"generation", "3"}}));
  REQUIRE(identity.ok());
  CHECK(identity->rank == 5);
  CHECK(identity->local_size == 4);
  CHECK(identity->cross_rank == 1);
  CHECK(identity->generation == 3);
}

TEST_CASE("an elastic job is Horovod's own if its launcher gives nothing of ours") {
  const auto is_foreign = [](std::initializer_list<std::pair<const char*, const char*>> more) {
    Values values = {{"elastic", "1"}, {"rank", "0"}, {"size", "1"}};
    values.insert(values.end(), more.begin(), more.end());
    return is_in_foreign_elastic_job(with(values));
  };
  CHECK(!is_foreign({}));
  CHECK(is_foreign({{"rendezvous_address", "a"}}));
  CHECK(!is_foreign({{"rendezvous_address", "a"}, {"elastic", "0"}}));
  CHECK(!is_foreign({{"rendezvous_address", "a"}, {"store", "tcp:a:1"}}));
}

TEST_CASE("a launcher of another release is refused, and one of another patch is not") {
  const std::string refused =
      refusal({{"launcher_version", "0.1.2"}, {"hostname", "b"}, {"rank", "0"}, {"size", "1"}});
  CHECK(contains(refused, "runtime_parts_test), "));  // the file with the library's code
  CHECK(refused.starts_with("rank 0 on host b has libhorovod " HVD_VERSION " ("));
  CHECK(refused.ends_with(hvd::cat(
      "), and its launcher is horovodrun 0.1.2; install version 0.1 of the package on host b, or "
      "start the job by horovodrun ",
      HVD_VERSION_MAJOR, ".", HVD_VERSION_MINOR)));
  const std::string patch = hvd::cat(HVD_VERSION_MAJOR, ".", HVD_VERSION_MINOR, ".99");
  CHECK(refusal({{"launcher_version", patch.c_str()}, {"rank", "0"}, {"size", "1"}}).empty());
}

TEST_CASE("ranks of other releases are named with their versions, hosts and libraries") {
  CHECK(compare_backends({"+own\n3.4.0\na\n/l", "+own\n3.4.1\nb\n/m"}).ok());
  CHECK(
      compare_backends({"+own\n3.4.0\na\n/l", "+own\n3.4.0\na\n/l", "+own\n3.5.0\nb\n/m"})
          .status()
          .message() ==
      "the ranks have different versions: rank 0 on host a and 1 more have libhorovod 3.4.0 (/l); "
      "rank 2 on host b has libhorovod 3.5.0 (/m); install the same major and minor version on "
      "all hosts");
  CHECK(contains(compare_backends({"+own\n3.4.0\na\n/l", "+own\n3.5.0\n\n/m"}).status().message(),
                 "rank 1 has libhorovod 3.5.0 (/m)"));
  CHECK(contains(compare_backends({"+own\n3.4.0\na\n/l", "+mpi\n3.4.0\nb\n/l"}).status().message(),
                 "different backends: rank 1 has mpi; rank 0 has own"));
  CHECK(compare_backends({"+own\n3.4.0\na\n/l", "-no mpi"}).status().message() == "rank 1: no mpi");
  CHECK(compare_backends({"+own\n3.4.0\na\n/l", "-rank 1 on host b has"}).status().message() ==
        "rank 1 on host b has");
}

TEST_CASE("ranks of which only some encrypt are named with their values and the remedy") {
  const auto record = [](const char* host, const char* encrypts) {
    return hvd::cat("+own\n3.4.0\n", host, "\n/l\n", encrypts);
  };
  CHECK(compare_backends({record("a", "1"), record("b", "1")}).ok());
  CHECK(compare_backends({record("a", "0"), "+own\n3.4.0\nb\n/l"}).ok());
  CHECK(
      compare_backends({record("a", "1"), record("a", "1"), record("b", "0")}).status().message() ==
      "HOROVOD_ENCRYPT differs between the ranks: rank 0 on host a has 1, rank 2 on host b has 0; "
      "set it alike on all ranks, as horovodrun --encrypt does");
  CHECK(contains(compare_backends({record("", "0"), record("", "1")}).status().message(),
                 "rank 0 has 0, rank 1 has 1"));
}

TEST_CASE("ranks of which only some sum in one order are named with their values") {
  const auto record = [](const char* host, const char* reproducible) {
    return hvd::cat("+own\n3.4.0\n", host, "\n/l\n0\n", reproducible);
  };
  CHECK(compare_backends({record("a", "1"), record("b", "1")}).ok());
  CHECK(compare_backends({record("a", "0"), "+own\n3.4.0\nb\n/l\n0"}).ok());
  CHECK(compare_backends({record("a", "0"), record("b", "1")}).status().message() ==
        "HOROVOD_REPRODUCIBLE differs between the ranks: rank 0 on host a has 0, rank 1 on host b "
        "has "
        "1; set it alike on all ranks");
}

TEST_CASE("all ranks open the backend for devices where each has its file and one has a GPU") {
  const auto record = [](const char* host, const char* operations, const char* has) {
    return hvd::cat("+own\n3.4.0\n", host, "\n/l\n0\n0\n", operations, "\n", has);
  };
  const auto opens = [](const std::vector<std::string>& records) {
    const auto found = compare_backends(records);
    REQUIRE(found.ok());
    return *found;
  };
  CHECK(opens({record("a", "trial", "driver"), record("b", "trial", "none")}));
  CHECK(!opens({record("a", "trial", "none"), record("b", "trial", "none")}));
  CHECK(!opens({record("a", "trial", "driver"), record("b", "trial", "file")}));
  CHECK(!opens({record("a", "host", "driver"), record("b", "host", "driver")}));
  CHECK(!opens({record("a", "nccl", "driver"), record("b", "nccl", "driver")}));
  CHECK(compare_backends({record("a", "trial", "driver"), record("b", "nccl", "driver")})
            .status()
            .message() ==
        "HOROVOD_GPU_OPERATIONS differs between the ranks: rank 0 on host a has no value, rank 1 "
        "on host b has nccl; set it alike on all ranks, or on none");
}

TEST_CASE("variables that contradict each other get one sentence") {
  CHECK(contains(refusal({{"rank", "4"}, {"size", "4"}}), "HOROVOD_RANK is 4"));
  CHECK(contains(refusal({{"rank", "-1"}, {"size", "4"}}), "must be from 0 to 3"));
  CHECK(contains(refusal({{"rank", "1"}}), "HOROVOD_SIZE is not"));
  CHECK(contains(refusal({{"size", "2"}}), "HOROVOD_RANK is not"));
  CHECK(contains(refusal({{"rank", "0"}, {"size", "0"}}), "no number of ranks"));
  CHECK(contains(refusal({{"local_rank", "0"}, {"local_size", "1"}}), "HOROVOD_RANK is not"));
  CHECK(contains(refusal({{"rank", "0"}, {"size", "2"}, {"local_rank", "0"}, {"local_size", "3"}}),
                 "HOROVOD_LOCAL_SIZE is 3"));
  CHECK(contains(refusal({{"rank", "0"}, {"size", "2"}}), "HOROVOD_STORE"));
  CHECK(contains(refusal({{"rank", "0"}, {"size", "2"}, {"store", "tcp:127.0.0.1:1"}}),
                 "HOROVOD_JOB_SECRET is not set"));
  CHECK(contains(refusal({{"rendezvous_address", "127.0.0.1"}}), "need each other"));
}

TEST_CASE("ranks do not encrypt with a secret that an unsigned server sends in clear") {
  CHECK(refusal({{"rank", "1"},
                 {"size", "2"},
                 {"local_size", "1"},
                 {"local_rank", "0"},
                 {"rendezvous_address", "127.0.0.1"},
                 {"rendezvous_port", "1"},
                 {"encrypt", "1"}}) ==
        "HOROVOD_ENCRYPT is set, but the rendezvous server at tcp:127.0.0.1:1 is unsigned, so that "
        "the secret of the keys would cross the network in clear; start the job by horovodrun, or "
        "unset HOROVOD_ENCRYPT");
}

TEST_CASE("the original's variables name the store too") {
  CHECK(*store_address(with({{"rendezvous_address", "10.0.0.1"}, {"rendezvous_port", "99"}})) ==
        "tcp:10.0.0.1:99");
  CHECK(*store_address(with({{"rendezvous_address", "fe80::1"}, {"rendezvous_port", "99"}})) ==
        "tcp:[fe80::1]:99");
  CHECK(*store_address(
            with({{"store", "unix:@x"}, {"rendezvous_address", "a"}, {"rendezvous_port", "1"}})) ==
        "unix:@x");
  CHECK(store_address({})->empty());
}

TEST_CASE("a place that was not given follows from the machines of the ranks") {
  Identity identity;
  identity.rank = 3;
  identity.size = 5;
  const std::vector<int32_t> machines{0, 1, 0, 1, 2};
  complete_identity(machines, &identity);
  CHECK(identity.local_rank == 1);
  CHECK(identity.local_size == 2);
  CHECK(identity.cross_rank == 1);
  CHECK(identity.cross_size == 2);
  CHECK(!identity.is_homogeneous);
}

TEST_CASE("the spin budget follows the cores that a rank really has") {
  CHECK(spin_budget(2, 2, true).waiter > spin_budget(2, 2, false).waiter);
  CHECK(spin_budget(2, 2, false).waiter.count() > 0);
  CHECK(!spin_budget(2, 2, true).yields);
  CHECK(spin_budget(2, 4, true).yields);
  CHECK(spin_budget(0.5, 1, true).waiter.count() == 0);
  CHECK(spin_budget(2, 2, true).after_computing > spin_budget(2, 2, false).after_computing);
  CHECK(spin_budget(2, 2, true).helper.count() == 0);
  CHECK(spin_budget(64, 4, true).helper.count() > 0);
  CHECK(spin_budget(2, 2, true).helper_shares_core);
  CHECK(!spin_budget(64, 4, true).helper_shares_core);
}

TEST_CASE("submissions gather longer where the helper has no core and no other host waits") {
  using std::chrono::microseconds;
  const microseconds window{1000};
  CHECK(gathering_time(spin_budget(2, 2, true), true, window) > window);
  CHECK(gathering_time(spin_budget(2, 2, false), false, window) == window);
  CHECK(gathering_time(spin_budget(64, 4, true), true, window) == window);
  CHECK(gathering_time(spin_budget(2, 2, true), true, microseconds(50000)) == microseconds(50000));
}

TEST_CASE("some ranks of a job go on as a job of their own") {
  hvd::runtime::Identity identity;
  identity.rank = 4;
  identity.size = 6;
  identity.local_rank = 1;
  identity.local_size = 2;
  const std::vector<int32_t> ranks{5, 4, 1};
  hvd::runtime::Identity restricted = identity;
  REQUIRE(hvd::runtime::restrict_to(ranks, &restricted).ok());
  CHECK(restricted.rank == 1);
  CHECK(restricted.size == 3);
  CHECK(restricted.job_rank == 4);
  CHECK(restricted.local_rank == -1);
  identity.rank = 0;
  const auto refusal_of = [&](std::vector<int32_t> list) {
    return hvd::runtime::restrict_to(list, &identity).message();
  };
  CHECK(refusal_of({5, 4}) ==
        "rank 0 is not in hvd.init(comm=[5, 4]), which only the ranks of the list may call");
  CHECK(refusal_of({0, 1, 0}) == "rank 0 is twice in hvd.init(comm=[0, 1, 0])");
  CHECK(refusal_of({0, 6}) ==
        "rank 6 is in hvd.init(comm=[0, 6]), but the job has the ranks 0 to 5");
  CHECK(refusal_of({-1, 0}).starts_with("rank -1 is in"));
  CHECK(hvd::runtime::restrict_to({}, &identity).ok());
  CHECK(identity.size == 6);
}
