#include "rendezvous/history.h"

#include <algorithm>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "base/text.h"

namespace hvd::rendezvous {
namespace {

using Kind = Operation::Kind;

// Applies the operation to the value of the key. Returns false if the operation's result
// contradicts that value.
bool apply(const Operation& operation, Held& held) {
  switch (operation.kind) {
    case Kind::kSet:
      held = operation.value;
      return true;
    case Kind::kRemove:
      held.reset();
      return true;
    case Kind::kGet:
      return !operation.is_known || operation.seen == held;
    case Kind::kSwap: {
      const bool swaps = operation.expected == held;
      if (swaps) held = operation.value;
      return !operation.is_known || (operation.swapped == swaps && operation.seen == held);
    }
  }
  return false;
}

// A call or a return. All events form a list by time; the search removes operations and puts them back.
struct Event {
  size_t operation = 0;
  bool is_call = true;
  size_t previous = 0;
  size_t next = 0;
  size_t partner = 0;  // the return of a call; 0: none
};

class Search {
 public:
  explicit Search(const std::vector<Operation>& history)
      : history_(history), done_(history.size(), '0') {
    struct Moment {
      uint64_t time;
      bool is_call;
      size_t operation;
    };
    std::vector<Moment> moments;
    for (size_t i = 0; i < history.size(); ++i) {
      moments.push_back({history[i].called, true, i});
      if (history[i].is_known) moments.push_back({history[i].returned, false, i});
    }
    // A call and a return at the same moment may overlap: the call comes first.
    std::sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
      return std::tuple(a.time, !a.is_call) < std::tuple(b.time, !b.is_call);
    });
    events_.resize(moments.size() + 1);  // 0 is the list's head
    std::vector<size_t> calls(history.size());
    for (size_t i = 0; i < moments.size(); ++i) {
      Event& event = events_[i + 1];
      event = {moments[i].operation, moments[i].is_call, i, i + 2, 0};
      if (event.is_call) {
        calls[event.operation] = i + 1;
      } else {
        events_[calls[event.operation]].partner = i + 1;
        ++open_returns_;
      }
    }
    if (!moments.empty()) events_.back().next = 0;
    events_[0].next = moments.empty() ? 0 : 1;
  }

  // Returns nothing if it finds an order; else the operation that failed after the longest partial
  // order.
  std::optional<size_t> run() {
    struct Step {
      size_t event;
      Held held;
    };
    std::vector<Step> steps;
    Held held;
    size_t at = events_[0].next;
    size_t stuck = 0;
    size_t most = 0;
    while (open_returns_ > 0) {
      const Event& event = events_[at];
      if (event.is_call) {
        Held after = held;
        const bool fits = apply(history_[event.operation], after);
        done_[event.operation] = '1';
        if (fits && tried_.insert(memory_of(after)).second) {
          steps.push_back({at, std::exchange(held, std::move(after))});
          lift(at);
          at = events_[0].next;
          continue;
        }
        done_[event.operation] = '0';
        at = event.next;
        if (at != 0) continue;
      }
      // The next event is the return of an unfinished operation: the last choice was wrong.
      if (steps.size() >= most && at != 0) {
        most = steps.size();
        stuck = events_[at].operation;
      }
      if (steps.empty()) return stuck;
      const Step last = std::move(steps.back());
      steps.pop_back();
      unlift(last.event);
      done_[events_[last.event].operation] = '0';
      held = last.held;
      at = events_[last.event].next;
    }
    return {};
  }

 private:
  std::string memory_of(const Held& held) const { return held ? cat(done_, "=", *held) : done_; }
  void take(size_t at) {
    events_[events_[at].previous].next = events_[at].next;
    if (events_[at].next != 0) events_[events_[at].next].previous = events_[at].previous;
  }
  void put_back(size_t at) {
    events_[events_[at].previous].next = at;
    if (events_[at].next != 0) events_[events_[at].next].previous = at;
  }
  void lift(size_t call) {
    take(call);
    if (const size_t partner = events_[call].partner) {
      take(partner);
      --open_returns_;
    }
  }
  void unlift(size_t call) {
    if (const size_t partner = events_[call].partner) {
      put_back(partner);
      ++open_returns_;
    }
    put_back(call);
  }

  const std::vector<Operation>& history_;
  std::vector<Event> events_;
  size_t open_returns_ = 0;
  std::string done_;  // '1' for each operation that is done
  std::unordered_set<std::string> tried_;
};

std::string quoted(const Held& held) { return held ? cat("'", printable(*held), "'") : "nothing"; }

}  // namespace

std::string to_string(const Operation& operation) {
  std::string text = cat("client ", operation.client, " from ", operation.called, " to ",
                         operation.is_known ? std::to_string(operation.returned) : "?", ": ");
  const std::string seen = operation.is_known ? quoted(operation.seen) : "?";
  switch (operation.kind) {
    case Kind::kSet:
      return cat(text, "set '", operation.value, "'");
    case Kind::kGet:
      return cat(text, "get: ", seen);
    case Kind::kRemove:
      return cat(text, "remove");
    case Kind::kSwap:
      return cat(text, "swap ", quoted(operation.expected), " for '", operation.value,
                 "': ", operation.swapped ? "done" : "not done", ", then ", seen);
  }
  return text;
}

std::optional<std::string> find_fault(std::vector<Operation> history) {
  std::sort(history.begin(), history.end(),
            [](const Operation& a, const Operation& b) { return a.called < b.called; });
  const auto stuck = Search(history).run();
  if (!stuck) return {};
  std::string text =
      cat("not linearizable: nothing explains ", to_string(history[*stuck]), "; near it:");
  constexpr size_t kAround = 8;
  for (size_t i = *stuck - std::min(*stuck, kAround); i < history.size() && i < *stuck + kAround;
       ++i) {
    text += cat("\n  ", to_string(history[i]));
  }
  return text;
}

}  // namespace hvd::rendezvous
