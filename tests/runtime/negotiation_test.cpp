// Negotiation without I/O: agreement, tree, nodes, coordinator, fusion.
#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <random>

#include "runtime/negotiation/agreement.h"
#include "runtime/negotiation/coordinator.h"
#include "runtime/negotiation/negotiator.h"
#include "runtime/submission/tensor_table.h"

using namespace hvd::runtime;

namespace {

Request reduce_of(std::vector<int64_t> shape, int32_t dtype = HVD_FLOAT32) {
  Request request;
  request.tensors = {{dtype, std::move(shape)}};
  return request;
}

Proposal proposal(int32_t rank, const Request& request) {
  Proposal made{"w", 1, {{rank, request}}, {}};
  if (has_rank_rows(request.op)) made.rows.push_back({rank, rows_of(request)});
  return made;
}

// Returns a rank's place in the tree of all ranks.
TreePlace place_of(int32_t rank, const std::vector<int32_t>& machines) {
  std::vector<int32_t> members(machines.size());
  std::iota(members.begin(), members.end(), 0);
  return place_in_tree(rank, members, machines);
}

std::string sentence(const Request& a, const Request& b) {
  Proposal both = proposal(1, a);
  merge(&both, proposal(4, b));
  return verdict(both).message();
}

}  // namespace

TEST_CASE("ranks that ask for the same agree") {
  CHECK(sentence(reduce_of({2, 3}), reduce_of({2, 3})).empty());
  Request gather = reduce_of({2, 3});
  gather.op = HVD_ALLGATHER;
  Request longer = gather;
  longer.tensors[0].shape[0] = 9;
  CHECK(sentence(gather, longer).empty());
}

TEST_CASE("the sentence names the first difference, both ranks and both values") {
  CHECK(sentence(reduce_of({2}), reduce_of({2}, HVD_INT8)) ==
        "Mismatched data types of 'w': float32 on rank 1, int8 on rank 4; give the tensor the "
        "same dtype on every rank");
  CHECK(sentence(reduce_of({2, 3}), reduce_of({2, 4})) ==
        "Mismatched ALLREDUCE tensor shapes of 'w': [2, 3] on rank 1, [2, 4] on rank 4; the shape "
        "must be the same on every rank");
  Request gather = reduce_of({2, 3});
  gather.op = HVD_ALLGATHER;
  Request wider = gather;
  wider.tensors[0].shape[1] = 4;
  CHECK(sentence(gather, wider).find("only dimension 0 may differ") != std::string::npos);
  Request flat = gather;
  flat.tensors[0].shape = {6};
  CHECK(sentence(gather, flat).find("[2, 3] on rank 1, [6] on rank 4") != std::string::npos);
  Request device = reduce_of({2});
  device.device = 0;
  CHECK(sentence(reduce_of({2}), device).find("CPU on rank 1, GPU on rank 4") != std::string::npos);
  Request group = reduce_of({2});
  group.tensors.push_back(group.tensors[0]);
  CHECK(sentence(reduce_of({2}), group).find("1 tensors on rank 1, 2 tensors on rank 4") !=
        std::string::npos);
}

TEST_CASE("the first check that fails is the one that is reported") {
  const auto told = [](
                        int32_t op, std::vector<int64_t> on_1, std::vector<int64_t> on_4,
                        const std::function<void(Request*)>& change = [](Request*) {}) {
    Request a = reduce_of(std::move(on_1));
    Request b = reduce_of(std::move(on_4));
    a.op = b.op = op;
    change(&b);
    Proposal both = proposal(1, a);
    merge(&both, proposal(4, b));
    return verdict(both, "rank 3").message();
  };
  const auto kind = [](const std::string& text, const char* part) {
    CHECK_MESSAGE(text.find(part) != std::string::npos, text);
  };
  const char* join = "not supported with Join at this time: rank 3 joined before it";
  // The error about a joined rank comes before errors about shapes, where only rows may differ, and
  // before errors about roots.
  kind(told(HVD_ALLGATHER, {2, 3}, {2, 4}), join);
  kind(told(HVD_ALLTOALL, {2}, {}), join);
  kind(told(HVD_BROADCAST, {2}, {2}, [](Request* r) { r->root = 1; }), join);
  kind(told(HVD_REDUCESCATTER, {}, {}), join);
  // Errors about parameters of all operations come first.
  kind(told(HVD_ALLGATHER, {2}, {2}, [](Request* r) { r->tensors[0].dtype = HVD_INT8; }),
       "Mismatched data types");
  kind(told(HVD_ALLGATHER, {2}, {2}, [](Request* r) { r->op = HVD_ALLREDUCE; }),
       "Mismatched operations");
  kind(told(HVD_BROADCAST, {2}, {3}), "Mismatched BROADCAST tensor shapes");
  kind(told(HVD_REDUCESCATTER, {2}, {3}), "Mismatched REDUCESCATTER tensor shapes");
  kind(told(HVD_REDUCESCATTER, {2}, {2}, [](Request* r) { r->prescale = 2; }),
       "Mismatched prescale");
  CHECK(told(HVD_ALLREDUCE, {}, {}).empty());
}

TEST_CASE("a scalar has no rows, whoever brings it") {
  for (const int32_t op : {HVD_ALLGATHER, HVD_ALLTOALL, HVD_REDUCESCATTER}) {
    Request scalar = reduce_of({});
    Request row = reduce_of({1});
    scalar.op = row.op = op;
    const std::string both = sentence(scalar, scalar);
    CHECK_MESSAGE(both.find("'w': a rank-zero tensor on rank 1") != std::string::npos, both);
    const std::string one = sentence(row, scalar);
    CHECK_MESSAGE(
        one.find(op == HVD_REDUCESCATTER ? "Mismatched REDUCESCATTER tensor shapes"
                                         : "a rank-zero tensor on rank 4") != std::string::npos,
        one);
  }
}

TEST_CASE("the sentence is the same in whatever order the requests come together") {
  const Request requests[4] = {reduce_of({1}), reduce_of({1}), reduce_of({2}), reduce_of({3})};
  std::vector<int32_t> order{0, 1, 2, 3};
  do {
    Proposal all;
    for (const int32_t rank : order) merge(&all, proposal(rank, requests[rank]));
    CHECK(verdict(all).message().find("[1] on rank 0, [2] on rank 2") != std::string::npos);
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("the tree: ranks under the leader of their machine, leaders in a binomial tree") {
  const std::vector<int32_t> machines{0, 0, 1, 1, 2, 2, 3, 3, 4, 4};
  const TreePlace root = place_of(0, machines);
  CHECK(root.parent == -1);
  CHECK(root.children == std::vector<int32_t>{1, 2, 4, 8});
  CHECK(root.subtrees[2] == std::vector<int32_t>{4, 5, 6, 7});
  CHECK(place_of(6, machines).parent == 4);
  CHECK(place_of(6, machines).children == std::vector<int32_t>{7});
  CHECK(place_of(7, machines).parent == 6);
  CHECK(place_of(7, machines).children.empty());
}

TEST_CASE("every rank but the root is the child of its parent, and its subtree is right") {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const int size = 1 + static_cast<int>(random() % 40);
    std::vector<int32_t> machines{0};
    int32_t count = 1;
    for (int rank = 1; rank < size; ++rank) {
      machines.push_back(static_cast<int32_t>(random() % static_cast<unsigned>(count + 1)));
      count = std::max(count, machines.back() + 1);
    }
    std::vector<TreePlace> places;
    for (int rank = 0; rank < size; ++rank) places.push_back(place_of(rank, machines));
    for (int rank = 0; rank < size; ++rank) {
      std::vector<int32_t> below{rank};
      for (size_t i = 0; i < places[rank].children.size(); ++i) {
        CHECK(places[places[rank].children[i]].parent == rank);
        below.insert(below.end(), places[rank].subtrees[i].begin(), places[rank].subtrees[i].end());
        CHECK(places[rank].subtrees[i].front() == places[rank].children[i]);
      }
      if (rank != 0) continue;
      std::sort(below.begin(), below.end());
      std::vector<int32_t> all(size);
      std::iota(all.begin(), all.end(), 0);
      CHECK(below == all);
    }
  }
}

TEST_CASE("many ranks of one machine report by eights") {
  const std::vector<int32_t> machines(100, 0);
  CHECK(place_of(0, machines).children == std::vector<int32_t>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(place_of(2, machines).children.front() == 17);
  CHECK(place_of(99, machines).parent == 12);
  CHECK(place_of(12, machines).parent == 1);
}

TEST_CASE("the tree of some ranks") {
  const std::vector<int32_t> machines{0, 0, 1, 1, 2, 2};
  const std::vector<int32_t> members{1, 2, 5};
  const auto parents = hvd::runtime::parents_in_tree(members, machines);
  for (const int32_t rank : members) {
    CHECK(parents[static_cast<size_t>(rank)] == place_in_tree(rank, members, machines).parent);
  }
  CHECK(place_in_tree(1, members, machines).parent == -1);
  CHECK(place_in_tree(1, members, machines).children == std::vector<int32_t>{2, 5});
  CHECK(place_in_tree(5, members, machines).parent == 1);
}

TEST_CASE("allreduces that match share a batch up to the threshold, in one order") {
  const Request a = reduce_of({10});
  const Request b = reduce_of({10}, HVD_FLOAT64);
  Request gather = reduce_of({10});
  gather.op = HVD_ALLGATHER;
  Request scaled = reduce_of({10});
  scaled.postscale = 0.5;
  const std::vector<FusionUnit> units = {
      {{0, HVD_FLOAT32}, &a, 40}, {{1, HVD_FLOAT64}, &b, 80},      {{2, HVD_FLOAT32}, &gather, 40},
      {{3, HVD_FLOAT32}, &a, 40}, {{4, HVD_FLOAT32}, &scaled, 40}, {{5, HVD_FLOAT32}, &a, 40},
      {{6, HVD_FLOAT64}, &b, 80}, {{7, HVD_FLOAT32}, &gather, 40}};
  std::vector<std::vector<PlanUnit>> batches;
  plan_fusion(units, {100, false}, &batches);
  const std::vector<std::vector<PlanUnit>> expected = {{{0, HVD_FLOAT32}, {3, HVD_FLOAT32}},
                                                       {{1, HVD_FLOAT64}},
                                                       {{2, HVD_FLOAT32}, {7, HVD_FLOAT32}},
                                                       {{4, HVD_FLOAT32}},
                                                       {{5, HVD_FLOAT32}},
                                                       {{6, HVD_FLOAT64}}};
  CHECK(batches == expected);
}

TEST_CASE("groups stay alone when that is asked for") {
  const Request one = reduce_of({10});
  Request group = reduce_of({5});
  group.tensors.push_back(group.tensors[0]);
  const std::vector<FusionUnit> units = {{{0, HVD_FLOAT32}, &one, 40},
                                         {{1, HVD_FLOAT32}, &group, 40},
                                         {{2, HVD_FLOAT32}, &one, 40},
                                         {{3, HVD_FLOAT32}, &group, 40}};
  const auto batches = [&](bool groups_alone) {
    std::vector<std::vector<PlanUnit>> planned;
    plan_fusion(units, {1000, groups_alone}, &planned);
    return planned.size();
  };
  CHECK(batches(false) == 1);
  CHECK(batches(true) == 3);
}

namespace {

// A whole tree without links: the test passes messages on, in random order.
struct Tree {
  struct Node {
    ResponseCache cache;
    TensorTable names;
    std::unique_ptr<Negotiator> negotiator;
    std::deque<Submission> submissions;
    std::map<std::string, Submission*> announced;
  };
  explicit Tree(const std::vector<int32_t>& machines) : nodes(machines.size()) {
    for (size_t rank = 0; rank < machines.size(); ++rank) {
      nodes[rank].negotiator = std::make_unique<Negotiator>(
          static_cast<int32_t>(rank), place_of(static_cast<int32_t>(rank), machines),
          &nodes[rank].cache);
    }
    std::vector<int32_t> members(machines.size());
    std::iota(members.begin(), members.end(), 0);
    coordinator = std::make_unique<Coordinator>(
        CoordinatorOptions{members, 0, {1 << 20, false}, 64}, &nodes[0].cache);
  }

  void announce(size_t rank, const std::string& name, const Request& request) {
    Node& node = nodes[rank];
    Submission& submission = node.submissions.emplace_back();
    submission.request = request;
    REQUIRE(node.names.insert(0, name, false, &submission).ok());
    node.announced[name] = &submission;
    node.negotiator->announce(submission);
  }
  // Passes reports up until none moves; the root's reports go to the coordinator.
  void settle(std::mt19937& random) {
    for (bool moved = true; moved;) {
      moved = false;
      std::vector<size_t> order(nodes.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t rank : order) {
        Announcement& ready = nodes[rank].negotiator->ready();
        if (ready.empty()) continue;
        moved = true;
        if (rank == 0) {
          coordinator->add(&ready);
          continue;
        }
        ++messages;
        Announcement carried = std::move(ready);
        ready.clear();
        const int32_t parent = nodes[rank].negotiator->place().parent;
        REQUIRE(nodes[parent].negotiator->receive(static_cast<int32_t>(rank), &carried).ok());
      }
    }
  }
  // Applies the plan on all nodes, like the runtime core, and returns the names in their order.
  std::vector<std::string> apply() {
    std::vector<std::string> order;
    const Plan plan = coordinator->plan();
    for (Node& node : nodes) {
      order.clear();
      for (const PlanItem& item : plan.items) {
        CacheEntry* entry = item.full ? nullptr : node.cache.find(item.id);
        const std::string text = item.full ? item.name : entry->text;
        order.push_back(text);
        Submission* submission = node.announced.at(text);
        Name* name = submission->name;
        if (item.full && item.id != 0 && item.error_code == HVD_OK) {
          entry = node.cache.put(item.id, text);
          REQUIRE(entry != nullptr);
          entry->request = submission->request;
          entry->rows = item.rows;
          entry->name = name;
          name->cached = entry;
          node.names.keep(name, true);
        }
        node.announced.erase(text);
        Submission* const done[] = {submission};
        node.names.remove(done);
      }
    }
    rows.clear();
    for (const PlanItem& item : plan.items) {
      rows[order[static_cast<size_t>(&item - plan.items.data())]] =
          item.full ? item.rows : nodes[0].cache.find(item.id)->rows;
    }
    coordinator->planned();
    return order;
  }

  std::vector<Node> nodes;
  std::unique_ptr<Coordinator> coordinator;
  std::map<std::string, std::vector<RankRows>> rows;
  int messages = 0;
};

}  // namespace

TEST_CASE("whatever the order and the changes, all names are agreed on with everybody's rows") {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    const int size = 1 + static_cast<int>(random() % 12);
    std::vector<int32_t> machines;
    for (int rank = 0; rank < size; ++rank) {
      machines.push_back(
          rank == 0 ? 0 : std::min(machines.back() + static_cast<int32_t>(random() % 2), rank));
    }
    Tree tree(machines);
    for (int step = 0; step < 8; ++step) {
      std::map<std::string, std::vector<int64_t>> expected;
      std::vector<std::pair<size_t, std::string>> todo;
      for (const char* name : {"a", "b", "c"}) {
        for (int rank = 0; rank < size; ++rank) todo.emplace_back(rank, name);
      }
      std::shuffle(todo.begin(), todo.end(), random);
      for (const char* name : {"a", "b", "c"}) expected[name].resize(static_cast<size_t>(size));
      for (const auto& [rank, name] : todo) {
        Request request = reduce_of({0, 2});
        request.op = HVD_ALLGATHER;
        // The parameters repeat or change at random.
        const auto rows = static_cast<int64_t>(random() % 2);
        request.tensors[0].shape[0] = rows;
        expected[name][rank] = rows;
        tree.announce(rank, name, request);
        if (random() % 3 == 0) tree.settle(random);
      }
      tree.settle(random);
      auto order = tree.apply();
      std::sort(order.begin(), order.end());
      CHECK(order == std::vector<std::string>{"a", "b", "c"});
      for (const auto& [name, rows] : tree.rows) {
        REQUIRE(rows.size() == static_cast<size_t>(size));
        for (int rank = 0; rank < size; ++rank) {
          CHECK(rows[static_cast<size_t>(rank)].rank == rank);
          CHECK(rows[static_cast<size_t>(rank)].rows[0] ==
                expected[name][static_cast<size_t>(rank)]);
        }
      }
    }
  }
}

TEST_CASE("one agreement costs one message for each rank but the root") {
  std::mt19937 random(3);
  Tree tree({0, 0, 1, 1, 2, 2, 3, 3});
  for (int step = 0; step < 4; ++step) {
    tree.messages = 0;
    for (size_t rank = 0; rank < 8; ++rank) tree.announce(rank, "w", reduce_of({4}));
    tree.settle(random);
    CHECK(tree.apply().size() == 1);
    CHECK(tree.messages == 7);
  }
  CHECK(tree.nodes[5].cache.size() == 1);
}

TEST_CASE("names used once get no id") {
  std::mt19937 random(3);
  Tree tree({0, 0});
  for (int step = 0; step < 100; ++step) {
    for (size_t rank = 0; rank < 2; ++rank) {
      tree.announce(rank, "noname." + std::to_string(step), reduce_of({4}));
    }
    tree.settle(random);
    tree.apply();
  }
  CHECK(tree.nodes[0].cache.size() == 0);
}

TEST_CASE("a node says which ranks it has not heard of") {
  std::mt19937 random(3);
  Tree tree({0, 0, 1, 1});
  tree.announce(0, "w", reduce_of({4}));
  tree.announce(1, "w", reduce_of({4}));
  tree.announce(3, "w", reduce_of({4}));
  tree.settle(random);
  CHECK(tree.nodes[0].negotiator->missing("w") == std::vector<int32_t>{2, 3});
  CHECK(tree.nodes[2].negotiator->missing("w").empty());
}

TEST_CASE("a message of a rank outside the tree is refused") {
  Tree tree({0, 0});
  Announcement unknown_id{0, 0, {5}, {}, {}, {}};
  CHECK(!tree.nodes[0].negotiator->receive(1, &unknown_id).ok());
  Announcement none;
  CHECK(!tree.nodes[1].negotiator->receive(0, &none).ok());
  Announcement twice{0, 0, {}, {proposal(1, reduce_of({1})), proposal(1, reduce_of({1}))}, {}, {}};
  CHECK(!tree.nodes[0].negotiator->receive(1, &twice).ok());
}
