#include "launcher/elastic/worker_address.h"

#include <cstring>
#include <optional>
#include <variant>

#include "base/json_text.h"
#include "base/secrets/hmac.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr size_t kKeyBytes = 32;
constexpr size_t kMaxValues = 1024;  // of the decoder's stack and of its memory
constexpr size_t kMaxAddresses = 256;

// The decoder tells these values apart. Containers hold nothing: the decoder collects addresses when it meets
// them, and nothing else counts.
struct Mark {};
struct Container {};  // a dictionary, a list, or a tuple of both
struct Pair {
  std::string address;
  int64_t port = 0;
};
struct Root {
  Bytes key;
};
using Value = std::variant<Mark, Container, Pair, Root, std::string, Bytes, int64_t>;

class Decoder {
 public:
  explicit Decoder(std::string_view input) : input_(input) {}

  // Nothing: the input is no such object.
  std::optional<WorkerAddress> decode() {
    while (!is_broken_ && !is_done_) step();
    if (is_broken_ || stack_.size() != 1) return {};
    auto* const root = std::get_if<Root>(&stack_.back());
    if (root == nullptr) return {};
    return WorkerAddress{std::move(addresses_), std::move(root->key)};
  }

 private:
  std::string_view take(size_t count) {
    if (count > input_.size()) {
      is_broken_ = true;
      return {};
    }
    const std::string_view taken = input_.substr(0, count);
    input_.remove_prefix(count);
    return taken;
  }
  // A number of this many bytes, the lowest first.
  uint64_t number(size_t bytes) {
    uint64_t value = 0;
    const std::string_view taken = take(bytes);
    for (size_t i = 0; i < taken.size(); ++i) {
      value |= static_cast<uint64_t>(static_cast<unsigned char>(taken[i])) << (8 * i);
    }
    return value;
  }
  void push(Value value) {
    if (stack_.size() >= kMaxValues) is_broken_ = true;
    if (!is_broken_) stack_.push_back(std::move(value));
  }
  Value pop() {
    if (stack_.empty()) {
      is_broken_ = true;
      return Mark{};
    }
    Value value = std::move(stack_.back());
    stack_.pop_back();
    return value;
  }

  // (address, port), or (dictionary, key).
  void make_pair() {
    const Value second = pop();
    const Value first = pop();
    const auto* const address = std::get_if<std::string>(&first);
    const auto* const port = std::get_if<int64_t>(&second);
    const auto* const key = std::get_if<Bytes>(&second);
    if (address != nullptr && port != nullptr) return push(Pair{*address, *port});
    if (std::holds_alternative<Container>(first) && key != nullptr && key->size() == kKeyBytes) {
      return push(Root{*key});
    }
    is_broken_ = true;
  }
  // Adds an entry to the list below it.
  void append() {
    const Value entry = pop();
    add(entry);
    expect_container();
  }
  void append_all() {
    while (!is_broken_) {
      const Value entry = pop();
      if (std::holds_alternative<Mark>(entry)) break;
      add(entry);
    }
    expect_container();
  }
  void add(const Value& entry) {
    const auto* const pair = std::get_if<Pair>(&entry);
    if (pair == nullptr || pair->port < 1 || pair->port > 65535 || pair->address.size() > 64 ||
        addresses_.size() >= kMaxAddresses) {
      is_broken_ = true;
      return;
    }
    // A list is read from its end.
    addresses_.emplace_back(pair->address, static_cast<uint16_t>(pair->port));
  }
  // Sets an interface's list in the dictionary below it. True behind the last one.
  bool set_item() {
    const Value list = pop();
    if (std::holds_alternative<Mark>(list)) return true;
    const Value name = pop();
    if (!std::holds_alternative<Container>(list) || !std::holds_alternative<std::string>(name)) {
      is_broken_ = true;
    }
    return false;
  }
  void expect_container() {
    if (stack_.empty() || !std::holds_alternative<Container>(stack_.back())) is_broken_ = true;
  }
  void text(size_t length) { push(std::string(take(length))); }
  void bytes(size_t length) {
    const ByteView taken = as_bytes(take(length));
    push(Bytes(taken.begin(), taken.end()));
  }
  void remember() {
    if (stack_.empty() || memory_.size() >= kMaxValues) {
      is_broken_ = true;
      return;
    }
    memory_.push_back(stack_.back());
  }
  void recall(uint64_t index) {
    // A container twice would be two names for one, which this object has not.
    if (index >= memory_.size() || !std::holds_alternative<std::string>(memory_[index])) {
      is_broken_ = true;
      return;
    }
    push(memory_[index]);
  }

  void step() {
    const std::string_view code = take(1);
    if (is_broken_) return;
    switch (static_cast<unsigned char>(code.front())) {
      case 0x80:  // the protocol's number
        if (number(1) > 5) is_broken_ = true;
        return;
      case 0x95:  // the length of a frame
        take(8);
        return;
      case '}':
      case ']':
        return push(Container{});
      case 0x94:
        return remember();
      case 'q':
        take(1);
        return remember();
      case '(':
        return push(Mark{});
      case 0x8c:
        return text(number(1));
      case 'X':
        return text(number(4));
      case 'C':
        return bytes(number(1));
      case 'B':
        return bytes(number(4));
      case 'K':
        return push(static_cast<int64_t>(number(1)));
      case 'M':
        return push(static_cast<int64_t>(number(2)));
      case 'J':
        return push(static_cast<int64_t>(static_cast<int32_t>(number(4))));
      case 'h':
        return recall(number(1));
      case 'j':
        return recall(number(4));
      case 0x86:
        return make_pair();
      case 'a':
        return append();
      case 'e':
        return append_all();
      case 's':
        if (set_item()) is_broken_ = true;
        return expect_container();
      case 'u':
        while (!is_broken_ && !set_item()) {
        }
        return expect_container();
      case '.':
        is_done_ = true;
        return;
      default:
        is_broken_ = true;
    }
  }

  std::string_view input_;
  std::vector<Value> stack_, memory_;
  std::vector<std::pair<std::string, uint16_t>> addresses_;
  bool is_broken_ = false;
  bool is_done_ = false;
};

void put_text(std::string& to, std::string_view text) {
  const auto size = static_cast<uint32_t>(text.size());
  to += 'X';
  for (int i = 0; i < 4; ++i) to += static_cast<char>(size >> (8 * i) & 0xff);
  to += text;
}

}  // namespace

Result<WorkerAddress> decode_worker_address(ByteView text) {
  if (text.size() > kMaxWorkerAddress) {
    return invalid_argument(cat("a worker's address has ", text.size(), " bytes"));
  }
  const auto pickled = from_base64(std::string(as_text(text)));
  if (!pickled.ok()) return pickled.error().with_context("a worker's address");
  auto address = Decoder(*pickled).decode();
  if (!address) return invalid_argument("a worker's address is no list of addresses with a key");
  return *std::move(address);
}

Bytes hosts_updated_request(ByteView key, int32_t time, int32_t updates) {
  // An instance of the class, made without arguments, whose attributes are then set.
  std::string body =
      "\x80\x02"
      "chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}(";
  put_text(body, "timestamp");
  body += 'J';
  for (int i = 0; i < 4; ++i)
    body += static_cast<char>(static_cast<uint32_t>(time) >> (8 * i) & 0xff);
  put_text(body, "res");
  body += 'K';
  body += static_cast<char>(updates);
  body += "ub.";
  const auto size = static_cast<int32_t>(body.size());
  std::string length(sizeof size, '\0');
  std::memcpy(length.data(), &size, sizeof size);
  const Digest digest = HmacKey(key).sign(as_bytes(body));
  Bytes request(digest.begin(), digest.end());
  for (const std::string& part : {length, body}) {
    const ByteView bytes = as_bytes(part);
    request.insert(request.end(), bytes.begin(), bytes.end());
  }
  return request;
}

}  // namespace hvd::launcher
